// Flows (flow-producer.ts).

import { flowNode, flowView } from '../views.mjs';
import { define } from './registry.mjs';

define('flow.add', ['flow'], 'FlowProducer#add', async ({ object }, a) =>
  flowView(await object.add(flowNode(a.flow), a.queues_options ? { queuesOptions: optionsByQueue(a.queues_options) } : undefined)),
);

function optionsByQueue(defaults) {
  return Object.fromEntries(Object.entries(defaults).map(([queue, opts]) => [queue, { defaultJobOptions: opts }]));
}

define('flow.addBulk', ['flow'], 'FlowProducer#addBulk', async ({ object }, a) => {
  return { flows: (await object.addBulk(a.flows.map(flowNode))).map(flowView) };
});
define('flow.getFlow', ['flow'], 'FlowProducer#getFlow', async ({ object }, a) => {
  const wanted = { id: a.job, queueName: a.queue, depth: a.depth ?? 10, maxChildren: a.max_children ?? 20 };
  const flow = await object.getFlow(wanted);
  return { flow: flow ? flowView(flow) : null };
});
