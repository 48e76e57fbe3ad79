// BullMQ takes job times, delays and back-off from Date. Installed before BullMQ is loaded, so that no module keeps the
// real one. Timers (setTimeout) are never touched: only what the clock shows stands still, not the event loop.

export const clock = {
  realNow: Date.now.bind(Date),
  frozenAt: null,
  now() {
    return clock.frozenAt ?? clock.realNow();
  },
  freeze(nowMs) {
    clock.frozenAt = nowMs;
  },
  run() {
    clock.frozenAt = null;
  },
};

function installClock() {
  const RealDate = Date;
  const ClockDate = new Proxy(RealDate, {
    construct(target, args, newTarget) {
      const instant = args.length === 0 ? [clock.now()] : args;
      return Reflect.construct(target, instant, newTarget === ClockDate ? target : newTarget);
    },
    apply() {
      return new RealDate(clock.now()).toString();
    },
  });
  RealDate.now = clock.now;
  globalThis.Date = ClockDate;
}

/** Back-off jitter is the one thing that BullMQ draws at random and that the kit can see: make it repeatable. */
export function seedRandom(seed) {
  let state = seed >>> 0;
  Math.random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

installClock();
