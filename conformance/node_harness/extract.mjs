// Prints every Lua script of a bullmq package as JSON, as BullMQ itself hands it to Redis: {"name": {keys, text}, ...}.
// The argument is the folder that holds `node_modules`.

import { createRequire } from 'node:module';
import path from 'node:path';

const fromRoot = createRequire(path.join(path.resolve(process.argv[2]), 'extract.cjs'));
const entry = fromRoot.resolve('bullmq');
const scripts = createRequire(entry)(path.join(path.dirname(entry), 'scripts'));

const extracted = Object.values(scripts).map(({ name, keys, content }) => [name, { keys, text: content }]);
process.stdout.write(JSON.stringify(Object.fromEntries(extracted)));
