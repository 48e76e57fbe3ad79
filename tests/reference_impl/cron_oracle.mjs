// Answers when cron patterns are due, as the cron-parser below a bullmq package says. The argument is the folder that
// holds `node_modules`. Each line in is [pattern, zone or null, Unix ms]; each line out is {due} or {error}.

import { createRequire } from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const fromRoot = createRequire(path.join(path.resolve(process.argv[2]), 'cron.cjs'));
const { parseExpression } = createRequire(fromRoot.resolve('bullmq'))('cron-parser');

function answer([pattern, tz, after]) {
  try {
    const options = { currentDate: new Date(after), ...(tz === null ? {} : { tz }) };
    return { due: parseExpression(pattern, options).next().getTime() };
  } catch (error) {
    return { error: error.message };
  }
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(answer(JSON.parse(line)))}\n`);
}
