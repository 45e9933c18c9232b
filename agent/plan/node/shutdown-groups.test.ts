import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds } from "@picolet/protocol/ports.ts";
import { desired, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { type ShutdownConfiguration, shutdownGroups, shutdownPeriods, totalPeriod } from "./shutdown-groups.ts";

const CRITICAL = 2_000_000_000;

const configured = (more: Partial<ShutdownConfiguration>): ShutdownConfiguration => ({
  shutdownGracePeriod: 0,
  shutdownGracePeriodCriticalPods: 0,
  shutdownGracePeriodByPodPriority: [],
  ...more,
});

const prioritised = (name: string, priority?: number) => desired(podOf({ priority }, { name }), name);

const grouped = (configuration: ShutdownConfiguration, ...pods: ReturnType<typeof prioritised>[]): unknown =>
  shutdownGroups(shutdownPeriods(configuration), pods).map((group) => [
    group.period / 1000,
    group.pods.map(({ uid }) => uid),
  ]);

test("nothing is configured: nothing is ended", () => {
  assert.deepEqual(shutdownPeriods(configured({})), []);
});

test("critical pods go last, in the part of the time that is theirs", () => {
  const configuration = configured({ shutdownGracePeriod: seconds(30), shutdownGracePeriodCriticalPods: seconds(10) });
  assert.deepEqual(
    grouped(configuration, prioritised("critical", CRITICAL + 1000), prioritised("plain"), prioritised("low", -5)),
    [
      [20, ["plain", "low"]],
      [10, ["critical"]],
    ],
  );
  assert.equal(totalPeriod(shutdownPeriods(configuration)), seconds(30));
});

test("by priority: a pod belongs to the highest that is not above its own, the lowest takes the rest", () => {
  const configuration = configured({
    shutdownGracePeriodByPodPriority: [
      { priority: 1000, shutdownGracePeriodSeconds: 60 },
      { priority: 10, shutdownGracePeriodSeconds: 120 },
      { priority: 100_000, shutdownGracePeriodSeconds: 10 },
    ],
  });
  const pods = [
    prioritised("none"),
    prioritised("below", 9),
    prioritised("at", 10),
    prioritised("just", 999),
    prioritised("thousand", 1000),
    prioritised("above", 1_000_000),
  ];
  assert.deepEqual(grouped(configuration, ...pods), [
    [120, ["none", "below", "at", "just"]],
    [60, ["thousand"]],
    [10, ["above"]],
  ]);
});

test("a group without pods takes no time", () => {
  const configuration = configured({ shutdownGracePeriod: seconds(30), shutdownGracePeriodCriticalPods: seconds(10) });
  assert.deepEqual(grouped(configuration, prioritised("critical", CRITICAL)), [[10, ["critical"]]]);
});
