// A folder as a web server shows it, on a loopback port of its own: pages find their scripts as they will when they are published.

import { createServer } from 'node:http';
import { readFile, stat } from 'node:fs/promises';
import { extname, join, normalize, sep } from 'node:path';

const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.json': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
};

/** Serve a folder until `close` is called. Returns `{ base, close }`; `base` ends with a slash. */
export async function served(folder) {
  const server = createServer((request, response) => {
    answer(folder, request, response).catch(() => response.writeHead(404).end());
  });
  await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
  return { base: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

async function answer(folder, request, response) {
  const path = normalize(decodeURIComponent(new URL(request.url, 'http://site').pathname));
  const aimed = join(folder, path);
  const file = (await stat(aimed)).isDirectory() ? join(aimed, 'index.html') : aimed;
  if (!file.startsWith(folder + sep)) throw new Error(`${path} is outside of the site`);
  const body = await readFile(file);
  response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' }).end(body);
}
