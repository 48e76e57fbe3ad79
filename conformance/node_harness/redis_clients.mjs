// The libraries through which BullMQ can speak to Redis. `ioredis` is its own choice; for the others the user sets
// `RedisConnection.clientFactory` (5.77 and newer), as here, or gives a client that is wrapped in the same way.

import { bullmq, ioredis, library, libraryModule } from './bullmq.mjs';

const part = encodeURIComponent;

/**
 * By library: a client from BullMQ's options of a connection, wrapped for BullMQ. The connection's name, which the
 * factories in BullMQ's documentation forget, is what `getWorkers` finds workers by; Bun's client takes none.
 */
const MAKERS = {
  redis: ({ host, port, username, password, db, tls, connectionName: name }) => {
    const socket = { host, port, ...(tls ? { tls: true, ...tls } : {}) };
    const settings = { socket, username, password, database: db ?? 0, name };
    return bullmq.createNodeRedisClient(libraryModule.createClient(settings));
  },
  'valkey-glide': ({ host, port, username, password, db, tls, connectionName: clientName }) => {
    const addresses = [{ host, port }];
    const credentials = password ? { credentials: { username, password } } : {};
    const settings = { addresses, ...credentials, databaseId: db ?? 0, useTLS: Boolean(tls), clientName };
    return bullmq.createValkeyGlideClient(libraryModule.GlideClient.createClient(settings));
  },
  bun: ({ host, port, username, password, db, tls }) => {
    const login = password ? `${part(username ?? '')}:${part(password)}@` : '';
    const url = `${tls ? 'rediss' : 'redis'}://${login}${host}:${port}/${db ?? 0}`;
    return bullmq.createBunRedisClient(new globalThis.Bun.RedisClient(url));
  },
};

/** Capabilities about ioredis: its clusters, an address as one URL, and giving up early. */
const OF_IOREDIS = ['cluster', 'fail-fast', 'url'];

/** The capabilities that the driver has with its library. */
export function withLibrary(capabilities) {
  return library === 'ioredis' ? capabilities : capabilities.filter(name => !OF_IOREDIS.includes(name));
}

/** A client of the user's own, from such options. */
export function newClient(options) {
  return library === 'ioredis' ? new ioredis.Redis(options) : MAKERS[library](options);
}

if (library !== 'ioredis') {
  // Its core writes to stdout, which is for the protocol.
  libraryModule?.Logger?.setLoggerConfig('off');
  bullmq.RedisConnection.clientFactory = MAKERS[library];
}
