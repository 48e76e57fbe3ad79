// The oracle: real BullMQ behind the driver protocol, version 1 (conformance/driver/messages.py and ops/).
//
// JSON lines come in on stdin and go out on stdout; stderr is the log. The end of stdin ends the process immediately.
// BullMQ is taken from the `node_modules` below the folder named in BULLMQ_CONFORMANCE_MODULES (default: this
// folder), so that one harness drives 5.62.0 and later versions alike: an operation whose method the package does not
// have is not declared.
//
// Comments name the upstream file (src/classes/*.ts) where a choice here only makes sense with knowledge of it.

import { bullmq, packages, version } from './bullmq.mjs';
import { clock, seedRandom } from './clock.mjs';
import { Overdue, Refusal, failure, messageOf } from './errors.mjs';
import { handleNamed, handles, within } from './handles.mjs';
import { LineReader, MAX_LINE_BYTES, log, send, sendEvent } from './lines.mjs';
import './operations/flows.mjs';
import './operations/getters.mjs';
import './operations/handles.mjs';
import './operations/jobs.mjs';
import './operations/queues.mjs';
import './operations/relays.mjs';
import { withLibrary } from './redis_clients.mjs';
import { declaredOperations, operations } from './operations/registry.mjs';
import './operations/schedulers.mjs';
import './operations/workers.mjs';

const PROTOCOL_VERSION = 1;
const CAPABILITIES = [
    'clock', 'manual-worker', 'managed-worker', 'cluster', 'raw-data', 'sandbox', 'url', 'client', 'fail-fast', 'queue-events', 'unheard',
    // Older releases have no metrics of their own.
    ...(bullmq.MetricNames ? ['meter'] : []),
];
/** The part of a call's deadline after which it is answered as undecided. */
const ANSWER_BY = 0.9;

const declared = declaredOperations();

async function perform(call) {
  const { roles, run } = operations.get(call.op);
  if (roles === null) {
    return run(null, call.args ?? {}, call);
  }
  const handle = handleNamed(call.handle);
  if (!roles.includes(handle.role)) {
    throw new Refusal('invalid-argument', `${call.op} does not work on ${handle.name}, which is a ${handle.role}`);
  }
  // Calls run concurrently: one that names a handle may come while its `open` still connects. Only `close` may end that.
  if (call.op !== 'close') {
    await handle.ready;
  }
  return run(handle, call.args ?? {}, call);
}

/**
 * ioredis retries for ever. A call that cannot finish is answered shortly before the kit's deadline as undecided,
 * because it may still happen.
 */
async function performInTime(call) {
  const limit = (call.deadline_ms ?? 5000) * ANSWER_BY;
  // The real clock: a frozen one would make every error look as old as the call.
  const started = clock.realNow();
  return within(limit, perform(call), () => {
    const seen = handles.get(call.handle)?.lastError;
    if (call.op === 'open') {
      const handle = handles.get(call.handle);
      handles.delete(call.handle);
      void handle?.abandon();
    }
    const reason = seen && seen.at >= started ? seen.message : 'no answer';
    throw new Overdue(`${call.op} did not end within ${Math.round(limit)} ms: ${reason}`);
  });
}

async function answer(call) {
  if (!declared.includes(call.op)) {
    const reason = operations.has(call.op) ? `bullmq ${version} has no such method` : 'unknown operation';
    send({ type: 'result', id: call.id, status: 'unsupported', reason });
    return;
  }
  if (typeof call.now_ms === 'number') {
    // Just before the operation, in the order of the lines: the clock belongs to the call that is being answered.
    clock.freeze(call.now_ms);
  }
  try {
    send({ type: 'result', id: call.id, status: 'ok', value: await performInTime(call) });
  } catch (error) {
    send(failure(call.id, error, call.op));
  }
}

function greet(hello) {
  if (hello.protocol !== PROTOCOL_VERSION) {
    log(`the kit speaks protocol ${hello.protocol}, this driver ${PROTOCOL_VERSION}`);
  }
  seedRandom(Number(hello.seed) || 0);
  const client = { name: 'bullmq', language: 'javascript', version, targets: version, packages };
  send({ type: 'ready', protocol: PROTOCOL_VERSION, client, ops: declared, capabilities: withLibrary(CAPABILITIES) });
}

function receive(line) {
  let message;
  try {
    message = JSON.parse(line);
  } catch (error) {
    log(`a line is not JSON: ${error.message}`);
    return;
  }
  if (message?.type === 'hello') {
    greet(message);
  } else if (message?.type === 'call') {
    void answer(message);
  } else {
    log(`a line of unknown type ${message?.type}`);
  }
}

function refuseLongLine(head) {
  log(`refused a line of more than ${MAX_LINE_BYTES} bytes`);
  const id = /"id"\s*:\s*(\d+)/.exec(head);
  if (id) {
    send(failure(Number(id[1]), new Refusal('invalid-argument', `a line may have ${MAX_LINE_BYTES} bytes`), ''));
  }
}

/** It would end a program of BullMQ's user; ending the driver would hide the answer to the call. */
function survive(error) {
  log(`uncaught: ${error?.stack ?? error}`);
  // No handle is known to be at fault, and all of them would end.
  handles.forEach(handle => sendEvent(handle, 'uncaught', { message: messageOf(error) }));
}

process.on('uncaughtException', survive);
process.on('unhandledRejection', survive);
// Set on most machines that run a kit like this, and on no user's: BullMQ must work alike with both.
process.env.CI ??= 'true';
// A closed pipe means that the kit is gone; without this handler Node.js would print a stack trace.
process.stdout.on('error', () => process.exit(0));

const lines = new LineReader(receive, refuseLongLine);
process.stdin.on('data', chunk => lines.push(chunk));
process.stdin.on('end', () => process.exit(0));
