// Calls the host as often as its arguments say, and gives and takes what needs memory on both sides.
import { getArguments } from "wasi:cli/environment@0.2.12";
import { getStdout } from "wasi:cli/stdout@0.2.12";
import { now, subscribeDuration } from "wasi:clocks/monotonic-clock@0.2.12";

/** What the host has given is given back at once: the engine does so only when it collects its garbage. */
function using(resource, use) {
  use(resource);
  resource[Symbol.dispose]();
}

const CALLS = {
  now: () => void now(),
  wait: () => using(subscribeDuration(1000), (pollable) => pollable.block()),
  print: () => using(getStdout(), (stream) => stream.blockingWriteAndFlush(Uint8Array.of(46))),
};

export const run = {
  run() {
    const [, what = "wait", count = "100"] = getArguments();
    for (let left = Number(count); left > 0; left -= 1) CALLS[what]();
  },
};

class Counter {
  constructor(start) {
    this.count = start;
  }

  add(by) {
    this.count += by;
    return this.count;
  }

  names() {
    return [`${this.count}`, "counter"];
  }
}

export const lists = {
  Counter,
  echo: (points, choice) => {
    if (points.length === 0) throw "there are no points";
    return [points.toReversed(), choice];
  },
  nothing() {},
};

export const shout = (text) => `${text}!`;
export const fail = (text) => {
  throw new Error(text);
};
