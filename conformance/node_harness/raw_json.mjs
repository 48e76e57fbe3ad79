// JSON.parse would lose what a text says exactly (large numbers, key order, spaces). BullMQ turns data, progress and
// return values into text with one top-level JSON.stringify each (job.ts, scripts.ts, job-scheduler.ts), so a value
// that carries its own text passes through it unchanged.

export class RawJson {
  constructor(text) {
    this.text = text;
  }
}

export const stringifyValue = JSON.stringify.bind(JSON);

function installRawJson() {
  JSON.stringify = (value, ...rest) => (value instanceof RawJson ? value.text : stringifyValue(value, ...rest));
}

/** JSON text of what BullMQ hands to its user; null where it has no value at all. */
export function jsonText(value) {
  if (value instanceof RawJson) {
    return seenByUser(value.text);
  }
  return stringifyValue(value) ?? null;
}

/** The same where the protocol wants a text: undefined reads as null. */
export function requiredText(value) {
  return jsonText(value) ?? 'null';
}

/** A job that was just made still holds the text that was sent; its user would see the parsed value. */
function seenByUser(text) {
  try {
    return stringifyValue(JSON.parse(text));
  } catch {
    return text;
  }
}

installRawJson();
