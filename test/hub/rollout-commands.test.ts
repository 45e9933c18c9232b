/** `picolet-hub rollout`, against an API server with a hub that carries the rollouts out. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { test } from "node:test";
import { parseHubArguments } from "@picolet/hub/main/arguments.ts";
import { runRollout } from "@picolet/hub/main/rollout-commands.ts";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { RolloutFleet } from "../support/unit/kubernetes/rollout-fleet.ts";
import { TempFolder } from "../support/unit/machine/temp-folder.ts";

const NEVER = new AbortController().signal;
const IMAGE = "registry.example/os:2";

/** @returns what was printed */
async function run(fleet: RolloutFleet, ...words: readonly string[]): Promise<string> {
  const args = parseHubArguments(["rollout", ...words]);
  assert.equal(args.command, "rollout");
  if (args.command !== "rollout") return "";
  let printed = "";
  const print = (text: string): void => {
    printed += text;
  };
  await runRollout({ client: fleet.cluster.client, clock: fleet.clock, print }, args.rollout, NEVER);
  return printed;
}

const refused = (code: "invalid" | "not_found" | "conflict" | "already_exists", message: RegExp) => (error: unknown) =>
  isPicoletError(error, code) && message.test(error.message);

test("an administrator makes a rollout, reads it, pauses it, goes on, stops it and undoes it", async () => {
  await using fleet = await RolloutFleet.start(["a", "b", "c"]);
  assert.equal(await run(fleet, "list"), "there are no rollouts\n");
  const flags = ["-l", "role=edge", "--hub-name", "test", "--canary=1", "--max-unavailable", "50%"];
  assert.equal(
    await run(fleet, "os", IMAGE, ...flags, "--name", "r", "--window", "02:00-05:00", "--bandwidth=256Ki"),
    "rollout r: 3 boards, 1 at a time\npicolet-hub rollout status r --watch shows how it goes\n",
  );
  const { spec } = await fleet.rollout("r");
  assert.deepEqual(spec, {
    kind: "os",
    target: IMAGE,
    selector: "role=edge",
    hub: "test",
    maxUnavailable: "50%",
    maxFailures: 3,
    canary: 1,
    window: "02:00-05:00",
    bandwidth: "256Ki",
    healthDeadline: "10m0s",
    allowDowngrade: false,
  });
  await fleet.until("r", (rollout) => rollout.status.boards.updating === 1);
  assert.equal(
    await run(fleet, "os", "registry.example/os:3", "--all", "--hub-name=test", "--name=s"),
    [
      "rollout s: 3 boards, 1 at a time",
      "it waits for rollout r, which has some of these boards",
      "picolet-hub rollout status s --watch shows how it goes",
      "",
    ].join("\n"),
  );
  assert.equal(
    await run(fleet, "status", "r"),
    [
      "Rollout  r",
      `os       ${IMAGE}`,
      "Boards   3, role=edge",
      "Limits   50% at a time, stops at 3 failed, 1 first, within 02:00-05:00, 256Ki a second",
      "Phase    Progressing: 0 of 3 boards done, 1 updating",
      "",
      "STATE     BOARDS",
      "pending   2",
      "updating  1",
      "",
    ].join("\n"),
  );
  assert.match(
    await run(fleet, "list"),
    /^NAME +KIND +PHASE +BOARDS +DONE +FAILED +AWAY +TARGET\nr +os +Progressing +3 /,
  );
  await run(fleet, "stop", "s");
  await run(fleet, "pause", "r");
  await fleet.until("r", ({ status: { phase } }) => phase === "Paused");
  await assert.rejects(run(fleet, "pause", "r"), refused("conflict", /it is so already \(Paused\)$/));
  assert.equal(await run(fleet, "resume", "r"), "rollout r: goes on\n");
  await fleet.until("r", ({ status: { phase } }) => phase === "Progressing");
  await run(fleet, "stop", "r");
  await fleet.until("r", ({ status: { phase, boards } }) => phase === "Stopped" && boards.updating === 0);
  const json = JSON.parse(await run(fleet, "status", "r", "-o", "json"));
  assert.deepEqual([json.phase, json.message, json.boards.pending], ["Stopped", "stopped by an operator", 3]);
  await assert.rejects(
    run(fleet, "status", "r", "--watch"),
    /^PicoletError: rollout r stopped: stopped by an operator$/,
  );
  await run(fleet, "undo", "r");
  await fleet.until("r", ({ status: { phase } }) => phase === "Undone");
  assert.equal(await run(fleet, "status", "r", "--watch"), "Undone: no board had to go back\n");
  await assert.rejects(run(fleet, "resume", "r"), refused("conflict", /it is being undone$/));
});

test("a configuration is read from its file, and each mistake is one sentence", async () => {
  await using fleet = await RolloutFleet.start(["a"]);
  using folder = new TempFolder();
  const file = folder.at("night.yaml");
  writeFileSync(file, "logLevel: debug\n");
  const flags = ["--hub-name=test", "--all"];
  assert.match(
    await run(fleet, "configuration", file, ...flags),
    /^rollout configuration-\d{14}: 1 board, 1 at a time\n/,
  );
  await run(fleet, "configuration", file, ...flags, "--name=night");
  assert.equal((await fleet.rollout("night")).spec?.target, "logLevel: debug\n");
  await fleet.until("night", (_, nodes) => {
    return nodes.get("a")?.metadata.annotations?.["picolet.io/configuration"] === "logLevel: debug\n";
  });
  await assert.rejects(
    run(fleet, "configuration", folder.at("none"), ...flags),
    refused("invalid", /^cannot read the config/),
  );
  await assert.rejects(
    run(fleet, "os", "file:///x.wasm", ...flags),
    refused("invalid", /must be in a registry, not a file$/),
  );
  await assert.rejects(run(fleet, "os", IMAGE, ...flags, "--window=night"), refused("invalid", /is no window such as/));
  await assert.rejects(run(fleet, "os", IMAGE, ...flags, "--name=A B"), refused("invalid", /^"A B" is no name: /));
  await assert.rejects(
    run(fleet, "os", IMAGE, "-l", "role=x", "--hub-name=test"),
    refused("not_found", /^no board of the hub/),
  );
  await assert.rejects(run(fleet, "os", IMAGE, ...flags, "--name=night"), refused("already_exists", /night/));
  await assert.rejects(run(fleet, "status", "none"), refused("not_found", /^there is no rollout none: /));
  for (const wrong of [
    ["os", IMAGE],
    ["os", IMAGE, "--all", "-l", "a=b"],
    ["os", IMAGE, "--all", "--max-unavailable=0"],
  ])
    assert.throws(
      () => parseHubArguments(["rollout", ...wrong]),
      /either --selector or --all|a number of boards above 0/,
    );
});
