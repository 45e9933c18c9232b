import assert from "node:assert/strict";
import { test } from "node:test";
import { HandlePool, HostResource, LiveResources } from "./handles.ts";

class Resource extends HostResource {
  closings = 0;
  readonly #also: Resource | undefined;

  constructor(pool: HandlePool, also?: Resource) {
    super(pool);
    this.#also = also;
  }

  protected override closed(): void {
    this.closings += 1;
    this.#also?.[Symbol.dispose]();
    if (this.#also === undefined) return;
    throw new Error("it holds another");
  }
}

test("held resources are counted and closed, also those that another one closes, and those of instances", () => {
  const component = new LiveResources();
  const instance = new LiveResources();
  component.addInstance(instance);
  const pool = new HandlePool("things", component);
  const ofInstance = new HandlePool("things", instance);
  const gone = new Resource(pool);
  const held = [new Resource(pool), new Resource(ofInstance), new Resource(ofInstance)];
  gone[Symbol.dispose]();
  const late = new Resource(pool);
  const holder = new Resource(pool, late);
  assert.equal(component.size, 5);
  component.closeAll();
  assert.equal(component.size, 0);
  assert.deepEqual(
    [gone, ...held, late, holder].map(({ closings }) => closings),
    // Another one has closed it too.
    [1, 1, 1, 1, 2, 1],
  );
});

test("a closed instance is not the component's any more", () => {
  const component = new LiveResources();
  const instance = new LiveResources();
  component.addInstance(instance);
  const resource = new Resource(new HandlePool("things", instance));
  assert.equal(component.size, 1);
  component.deleteInstance(instance);
  assert.equal(component.size, 0);
  component.closeAll();
  assert.equal(resource.closings, 0);
});

test("a resource without a number in the pool is not held", () => {
  const live = new LiveResources();
  const pool = new HandlePool("things", live);
  const all = Array.from({ length: 1024 }, () => new Resource(pool));
  assert.throws(() => new Resource(pool), /more than 1024 things/);
  assert.equal(live.size, all.length);
});
