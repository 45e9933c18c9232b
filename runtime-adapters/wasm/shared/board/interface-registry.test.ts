import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import { BOARD_INTERFACES, type BoardInterface, type BoardService } from "@picolet/runtime-contract/board-services.ts";
import { Bench } from "@picolet/test/support/unit/wasm/service-bench.ts";
import { deviceImports } from "../../runner/device-imports.ts";
import { boardInterfaceOf, INTERFACE_GRANTS, importsBoard, parseInterfaces } from "../grants/board-grants.ts";
import { deviceMismatches, parseDevices } from "../grants/device-grants.ts";
import { ungrantedImports } from "../grants/import-grants.ts";
import { podGrants } from "../grants/pod-grants.ts";
import { parsePath } from "../grants/syntax/device-syntax.ts";
import type { InterfaceGrant } from "../grants/syntax/interface-grant.ts";
import type { BoardLaunch } from "../messages/launch.ts";
import { Poller, type Waiter, WouldBlock } from "../resources/polling.ts";
import { boardImports, type HostPart } from "./board.ts";

const WIT = "wit/board";
const ECHO = "echo" as BoardInterface;
const NAME = "picolet:board/echo@0.1.0";

/** An interface that the product does not have: everything that a new one adds to the tables. */
const grant: InterfaceGrant = {
  asksAgent: true,
  proposals: { "wasi:echo/echo": /^0\.1\.0-draft$/ },
  waiting: { "picolet:board/echo": ["say"] },
  device: { example: "echo:/dev/echo0", parse: (text) => parsed(text) },
};
const grants = { ...INTERFACE_GRANTS, echo: grant };

function parsed(text: string): ReturnType<NonNullable<InterfaceGrant["device"]>["parse"]> {
  const path = parsePath(text);
  return "problem" in path ? path : { value: { kind: "echo" as "serial", path: path.value } };
}

const log = { write: () => undefined };
const waiter: Waiter = {
  now: () => 0n,
  wait: (wanted) => {
    throw new WouldBlock(wanted);
  },
};

const launch: BoardLaunch = {
  interfaces: [ECHO],
  pod: { name: "p", namespace: "default", uid: "u", container: "main" },
  configPath: undefined,
  logLevel: "info",
  token: undefined,
};

describe("the tables of the board's interfaces", () => {
  it("name what wit/board has, in the contract and in the world too", () => {
    const files = readdirSync(WIT).flatMap((file) => (file.endsWith(".wit") ? [file.slice(0, -".wit".length)] : []));
    const interfaces = files.filter((each) => each !== "world").sort();
    const imported = [...readFileSync(`${WIT}/world.wit`, "utf8").matchAll(/^ +import ([\w-]+);/gm)].map(([, n]) => n);
    assert.ok(interfaces.length > 0);
    assert.deepEqual(Object.keys(INTERFACE_GRANTS).sort(), interfaces);
    assert.deepEqual([...BOARD_INTERFACES].sort(), interfaces);
    assert.deepEqual(imported.sort(), interfaces);
  });

  it("name functions of wit/board alone as waiting", () => {
    for (const [name, { waiting = {} }] of Object.entries(INTERFACE_GRANTS)) {
      const text = readFileSync(`${WIT}/${name}.wit`, "utf8");
      for (const each of waiting[`picolet:board/${name}`] ?? []) {
        const called = each.replace(/^\[\w+\][\w-]+\./, "");
        assert.match(text, new RegExp(`^ +${called}: func\\(`, "m"), `${name}: ${each}`);
      }
    }
  });

  it("have a host part for each interface, under its name in WIT", async () => {
    await using bench = await Bench.open();
    const client = bench.client();
    for (const name of BOARD_INTERFACES) {
      const poller = new Poller(waiter, () => undefined);
      const components = { log, preopens: [], poller, client };
      const imports =
        INTERFACE_GRANTS[name].device === undefined
          ? boardImports(components, { ...launch, interfaces: [name] })
          : deviceImports({} as never, [name]);
      assert.ok(`picolet:board/${name}` in imports, name);
      const proposals = Object.keys(INTERFACE_GRANTS[name].proposals ?? {});
      for (const each of proposals) assert.ok(each in imports, each);
    }
  });
});

describe("an interface that is added to the tables", () => {
  it("is granted to pods that name it", () => {
    assert.deepEqual(parseInterfaces("echo, config", grants), { value: ["echo", "config"], problems: [] });
    assert.equal(boardInterfaceOf(NAME, grants), "echo");
    assert.equal(boardInterfaceOf("wasi:echo/echo@0.1.0-draft", grants), "echo");
    assert.equal(boardInterfaceOf("wasi:echo/echo@0.2.0", grants), undefined);
    assert.equal(boardInterfaceOf(NAME), undefined);
    assert.equal(
      importsBoard([NAME], ({ asksAgent }) => asksAgent, grants),
      true,
    );
    assert.deepEqual(ungrantedImports([NAME], [ECHO], false, grants), []);
    assert.deepEqual(ungrantedImports([NAME], [], false, grants), [NAME]);
  });

  it("has the annotations of its grant read", () => {
    const pod = (value: string) => ({ metadata: { annotations: { "wasm.picolet.io/echo-volume": value } } }) as never;
    const annotations = { "echo-volume": (value: string) => (value === "loud" ? [] : ["it has to be loud"]) };
    const known = { ...grants, echo: { ...grant, annotations } };
    assert.throws(() => podGrants(pod("loud")), /there is no such annotation/);
    assert.throws(() => podGrants(pod("low"), known), /echo-volume: it has to be loud/);
    assert.doesNotThrow(() => podGrants(pod("loud"), known));
  });

  it("has its devices parsed by its own syntax", () => {
    const { value, problems } = parseDevices("echo:/dev/echo0; serial:/dev/ttyS0", grants);
    assert.deepEqual(problems, []);
    assert.deepEqual(value[0], { kind: "echo", path: "/dev/echo0" });
    assert.match(parseDevices("echo:/etc", grants).problems[0] ?? "", /no path of a device/);
    assert.deepEqual(deviceMismatches(["echo"], [], grants), [
      "the interface echo is named without a device: add echo:/dev/echo0 to wasm.picolet.io/devices",
    ]);
  });

  it("is called by a component, and asks its service at the agent", async () => {
    const service: BoardService = {
      call: (_peer, method, { value }) => ({ value: `${method} ${String(value)}`, bytes: [] }),
    };
    await using bench = await Bench.open(service, systemClock, ECHO);
    const poller = new Poller(waiter, () => undefined);
    const part: HostPart = ({ calls }) =>
      calls && { [NAME]: { say: (value: string) => calls.ask({ method: "echo.say", value, repeatable: true }).value } };
    const components = { log, preopens: [], poller, client: bench.client() };
    const say = boardImports(components, launch, { echo: part })[NAME]?.say as (text: string) => unknown;
    assert.equal(await settled(() => say("hello")), "say hello");
    assert.deepEqual(boardImports({ ...components, client: undefined }, launch, { echo: part }), {});
    assert.deepEqual(boardImports(components, { ...launch, interfaces: [] }, { echo: part }), {});
  });
});

/** Calls a host function as the event loop does: again with the same arguments when it is ready. */
async function settled<T>(call: () => T): Promise<T> {
  for (;;) {
    try {
      return call();
    } catch (error) {
      if (!(error instanceof WouldBlock)) throw error;
      const { wanted } = error;
      await new Promise<void>((resolve) => {
        for (const each of wanted) each.onReady?.(resolve);
      });
    }
  }
}
