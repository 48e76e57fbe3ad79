// The relay: messages between processes (relay.ts, 6.4 and newer).

import { Refusal } from '../errors.mjs';
import { sendEvent } from '../lines.mjs';
import { RawJson, jsonText } from '../raw_json.mjs';
import { orNull } from '../views.mjs';
import { define, nothing } from './registry.mjs';

function onRelay(name, run, needs = `Relay#${name}`) {
  define(`relay.${name}`, ['relay'], needs, (handle, args) => run(handle.object, args, handle));
}

onRelay('publish', async (relay, a) => {
  const { nodes, endpoints } = await relay.publish(a.topic, new RawJson(a.data_raw), { retain: a.retain_ms ?? 0 });
  return { nodes, endpoints };
});
onRelay('subscribe', async (relay, a, handle) => {
  const { pattern } = a;
  const listener = ({ topic, data, mid, ts, retained }) =>
    sendEvent(handle, 'message', { pattern, topic, data_raw: jsonText(data), mid, ts, retained });
  handle.subscriptions.push(await relay.subscribe(pattern, listener));
  return {};
});
onRelay('unsubscribe', (relay, a, handle) => {
  const last = handle.subscriptions.findLastIndex(({ pattern }) => pattern === a.pattern);
  if (last === -1) {
    throw new Refusal('invalid-argument', `${handle.name} has no subscription to ${a.pattern}`);
  }
  const [subscription] = handle.subscriptions.splice(last, 1);
  return subscription.unsubscribe().then(nothing);
}, 'Relay#subscribe');
onRelay('deleteRetained', async (relay, a) => ({ value: await relay.deleteRetained(a.topic) }));
onRelay('getCounts', relay => relay.getCounts());
onRelay('getNodes', async (relay, a) => {
  const view = ({ id, info, backlog, dropped, subscriptions }) =>
    ({ id, name: orNull(info.name), backlog, dropped, subscriptions });
  return { nodes: (await relay.getNodes(a.start ?? 0, a.end ?? -1)).map(view) };
});
onRelay('getPatterns', async (relay, a) => ({ patterns: await relay.getPatterns(a.start ?? 0, a.end ?? -1) }));
onRelay('getRetained', async (relay, a) => {
  const kept = await relay.getRetained(a.start ?? 0, a.end ?? -1);
  return { messages: kept.map(({ topic, data }) => ({ topic, data_raw: data })) };
});
onRelay('getNamespaces', async relay => ({ namespaces: await relay.getNamespaces() }));
