// Opening and closing what the other operations work on.

import { clock } from '../clock.mjs';
import { abandonInTime, handles, sharedClients } from '../handles.mjs';
import { openHandle } from '../opening.mjs';
import { resolveAsked } from '../processors.mjs';
import { define, nothing } from './registry.mjs';


define('open', null, null, (handle, args, call) => openHandle(call.handle, args).then(nothing));
define('close', ['queue', 'worker', 'events', 'flow', 'relay'], null, async (handle, a) => {
  await handle.close(a.force ?? false);
  handles.delete(handle.name);
  return {};
});
define('resolve', ['worker'], null, resolveAsked);
define('reset', null, null, async () => {
  const open = [...handles.values()];
  // Before the closes: a concurrent call must not find a handle that is closing.
  handles.clear();
  clock.run();
  await Promise.all(open.map(abandonInTime));
  // BullMQ does not close a client that it was given.
  sharedClients.forEach(client => client.disconnect());
  sharedClients.clear();
  return {};
});
