// Makes a relay with two nodes, a retained message and an unread one, and stops without unregistering.
import { createRequire } from "node:module";

const [folder, port, prefix, text] = process.argv.slice(2);
const { Relay } = createRequire(`${folder}/`)("bullmq");
const options = { connection: { host: "127.0.0.1", port: Number(port) }, prefix, leaseDuration: 60000 };
const nodes = ["one", "two"].map((nodeId) => new Relay({ ...options, nodeId, name: `node ${nodeId}` }));
for (const node of nodes) {
  await node.waitUntilReady();
  await node.subscribe("queues.*.jobs.>", () => undefined);
  await node.subscribe("queues.mail.paused", () => undefined);
}
await nodes[0].publish("queues.mail.paused", { text }, { retain: 600000 });
await nodes[1].publish("queues.mail.jobs.1.progress", { percent: 50 });
process.exit(0);
