// Maps errors of BullMQ, ioredis and Redis to codes of the driver protocol.

/** Negative replies of the scripts (src/enums/error-code.ts) as names of the driver protocol. */
const SCRIPT_ERRORS = new Map([
  [-1, 'missing-job'],
  [-2, 'missing-lock'],
  [-3, 'wrong-state'],
  [-4, 'pending-dependencies'],
  [-5, 'missing-parent'],
  [-6, 'lock-mismatch'],
  [-7, 'parent-replaced'],
  [-8, 'scheduler-job'],
  [-9, 'failed-children'],
  [-10, 'scheduler-collision'],
  [-11, 'scheduler-collision'],
]);

/** Errors of a relay (src/classes/relay-errors.ts): no such node, and a layout of another version. */
const RELAY_ERRORS = new Map([
  [-3, 'other'],
  [-6, 'other'],
]);

const CONNECTION_CODES = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EHOSTUNREACH']);
const CONNECTION_NAMES = new Set(['MaxRetriesPerRequestError', 'ClusterAllFailedError', 'AbortError']);
const CONNECTION_TEXT = /Connection is closed|Stream isn't writeable|ECONNREFUSED|ECONNRESET|Disconnects client|The client is closed/i;
/** Classes of errors of node-redis, Glide and Bun: they have no codes. */
const CONNECTION_CLASSES = /Socket|ClientClosed|ClientOffline|Disconnects|ConnectionTimeout|ConnectionClosed|ClosingError|ConnectionError/;
const REPLY_CLASSES = /ErrorReply|SimpleError|BlobError|RequestError|MultiError/;

/** Texts of errors without a code that BullMQ throws after it has asked Redis. */
const TEXT_ERRORS = [
  [/^Job wait .* timed out before finishing/s, 'timeout'],
  // Before 5.58.8 the errors for negative replies of scripts have no code either.
  [/^Missing key for job /, 'missing-job'],
  [/^Missing lock for job /, 'missing-lock'],
  [/^Lock mismatch for job /, 'lock-mismatch'],
  [/^Job .* is not in the .* state\. /s, 'wrong-state'],
  [/^Job .* has pending dependencies\. /s, 'pending-dependencies'],
  [/^Missing key for parent job /, 'missing-parent'],
  [/^The parent job .* cannot be replaced\. /s, 'parent-replaced'],
  [/^Job .* belongs to a job scheduler and cannot be removed directly/s, 'scheduler-job'],
  [/could not be removed because it is locked/, 'lock-mismatch'],
  [/^Cannot obliterate /, 'other'],
  [/same slot/, 'other'],
  [/^Redis version needs to be/, 'other'],
];

/** An error that the driver itself decides on. */
export class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.refusal = code;
  }
}

/** The call has not ended, and may still. */
export class Overdue extends Error {}

export function messageOf(error) {
  return String(error?.message ?? error);
}

/** Whether the call may still happen. Glide gives up after 250 ms. */
function isOverdue(error) {
  return error instanceof Overdue || classOf(error) === 'TimeoutError';
}

function classOf(error) {
  return error?.constructor?.name ?? '';
}

export function errorCode(error) {
  if (error instanceof Refusal) {
    return error.refusal;
  }
  // Its codes are numbers of their own: all but these are about arguments.
  if (error?.name === 'RelayError') {
    return RELAY_ERRORS.get(error.code) ?? 'invalid-argument';
  }
  // The code before the text: texts differ between versions of BullMQ, the numbers do not.
  if (SCRIPT_ERRORS.has(error?.code)) {
    return SCRIPT_ERRORS.get(error.code);
  }
  const { code, name } = error ?? {};
  if (CONNECTION_CODES.has(code) || CONNECTION_NAMES.has(name) || CONNECTION_TEXT.test(messageOf(error)) || CONNECTION_CLASSES.test(classOf(error))) {
    return 'connection-lost';
  }
  if (isOverdue(error)) {
    return 'timeout';
  }
  for (const [pattern, meaning] of TEXT_ERRORS) {
    if (pattern.test(messageOf(error))) {
      return meaning;
    }
  }
  if (name === 'ReplyError' || REPLY_CLASSES.test(classOf(error)) || error instanceof SyntaxError || typeof code === 'number') {
    return 'other';
  }
  // All other errors come from BullMQ's own checks of arguments, before it sends anything.
  return 'invalid-argument';
}

/** `definite` is false if Redis may have acted: the connection broke, or a claimed job could not be read. */
export function failure(id, error, operation) {
  const code = errorCode(error);
  const claimedButUnreadable = error instanceof SyntaxError && operation.startsWith('worker.');
  const definite = code !== 'connection-lost' && !isOverdue(error) && !claimedButUnreadable;
  const status = definite ? 'fail' : 'info';
  return { type: 'result', id, status, error: { code, definite, message: messageOf(error) } };
}
