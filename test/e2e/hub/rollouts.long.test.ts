/**
 * Rollouts as an operator sees them: a real hub, its command, and boards on real tunnels that leave and come back as a
 * restart makes them. What boards report of their updates is written into their Nodes by the administrator, as the
 * bridge does it for an agent.
 */
import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { loadAuthority } from "@picolet/hub/identity/certificate-authority.ts";
import { FilePemStore } from "@picolet/hub/identity/pem-store.ts";
import { type KubeClient, NODES } from "@picolet/hub-core/kube-client/kube-client.ts";
import type { ObjectKey } from "@picolet/protocol/tunnel/messages.ts";
import type { UpdateState } from "@picolet/protocol/updates/node-updates.ts";
import { FleetSimulator } from "../../bench/hub/fleet-simulator.ts";
import type { SimulatedBoard } from "../../bench/hub/simulated-board.ts";
import { FleetAdmin } from "../../support/hub/fleet-admin.ts";
import { endProcess, Fleet, untilPrinted } from "../../support/hub/test-fleet.ts";

const NEVER = new AbortController().signal;
const PROGRAM = "dist/hub/bin/picolet-hub";
const BOARDS = 10;
const MAX_UNAVAILABLE = 3;
const OS = "picolet.io/os-image";
/** Generous: the machine is shared. */
const COMMAND_LIMIT_MS = 180_000;

let hub: Fleet;
let admin: FleetAdmin;
let boards: PlayedBoards;

interface CommandResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

const at = (): readonly string[] => ["--embedded", "--data-dir", hub.dataDir];

function picoletHub(...args: readonly string[]): Promise<CommandResult> {
  const all = ["rollout", ...args, ...at()];
  return new Promise((resolve) => {
    execFile(PROGRAM, all, { timeout: COMMAND_LIMIT_MS }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr }),
    );
  });
}

/** Boards on real tunnels that carry out what their Node wishes. */
class PlayedBoards {
  readonly #fleet: FleetSimulator;
  readonly #client: () => KubeClient;
  readonly #wishes = new Map<string, string>();
  readonly #off = new Set<string>();
  /** A session that ended earlier would lose the answers to the boards' first reports. */
  readonly #reported = Promise.withResolvers<void>();
  /** The most that were off at one time since the start. */
  mostOff = 0;
  /** Called when a board is done or has failed. */
  onEnd: (node: string) => void = () => undefined;
  endOf: (node: string) => UpdateState = () => "good";
  failure: unknown;

  constructor(fleet: FleetSimulator, client: () => KubeClient) {
    this.#fleet = fleet;
    this.#client = client;
    fleet.onObject = (board, key, object) => this.#received(board, key, object);
  }

  static async start(count: number, prefix: string): Promise<PlayedBoards> {
    const stored = await new FilePemStore({ path: join(hub.dataDir, "hub-ca.json") }).load();
    const { "ca.crt": ca = "", "ca.key": caKey = "" } = stored?.files ?? {};
    const clientCa = loadAuthority(ca, caKey);
    const fleet = FleetSimulator.create({ hub: hub.ready.tunnel, hubCa: ca, clientCa, count, prefix });
    const played = new PlayedBoards(fleet, () => admin.client);
    await fleet.connect(count);
    await Promise.all(fleet.boards.map((board) => board.reportNode()));
    played.#reported.resolve();
    return played;
  }

  end(): void {
    this.#fleet.end();
  }

  #received(board: SimulatedBoard, key: ObjectKey, object: Readonly<Record<string, unknown>>): void {
    if (key !== `Node//${board.node}`) return;
    const { annotations = {} } = object.metadata as { readonly annotations?: Readonly<Record<string, string>> };
    assert.ok(
      !Object.keys(annotations).some((name) => name.startsWith("picolet.io/rollout-")),
      "turns stay in the hub",
    );
    const wish = annotations[OS];
    if (wish === undefined || wish === this.#wishes.get(board.node)) return;
    this.#wishes.set(board.node, wish);
    this.#update(board, wish).catch((error: unknown) => {
      this.failure ??= error;
    });
  }

  async #update(board: SimulatedBoard, target: string): Promise<void> {
    await this.#reported.promise;
    const { node } = board;
    const report = (state: UpdateState, message = ""): Promise<void> => this.#report(node, target, state, message);
    await report("installing");
    if (this.endOf(node) === "failed") {
      await report("failed", "the bundle's signature is wrong");
      this.onEnd(node);
      return;
    }
    this.#off.add(node);
    this.mostOff = Math.max(this.mostOff, this.#off.size);
    await report("restarting");
    await this.#fleet.restart(board);
    await report("trial");
    this.#off.delete(node);
    await report(this.endOf(node));
    this.onEnd(node);
  }

  /** Again and again while the hub is gone. */
  async #report(node: string, target: string, state: UpdateState, message: string): Promise<void> {
    const updates = [{ kind: "os", target, state, message, since: new Date().toISOString() }];
    const annotations = { "picolet.io/update-status": JSON.stringify({ updates }) };
    for (;;) {
      try {
        await this.#client().patch(
          NODES,
          { namespace: "", name: node },
          "merge",
          { metadata: { annotations } },
          {},
          NEVER,
        );
        return;
      } catch {
        await hubServes();
      }
    }
  }
}

/** Until the hub that was killed has been started again. */
let hubServes: () => Promise<void> = () => Promise.resolve();

before(async () => {
  hub = await Fleet.start();
  admin = await FleetAdmin.of(hub);
  boards = await PlayedBoards.start(BOARDS, "b");
});

after(async () => {
  boards?.end();
  await using all = new AsyncDisposableStack();
  for (const each of [hub, admin]) if (each !== undefined) all.use(each);
});

test("ten boards are updated three at a time, also when the hub is killed meanwhile", async () => {
  let done = 0;
  const half = new Promise<void>((resolve) => {
    boards.onEnd = () => {
      done += 1;
      if (done === BOARDS / 2) resolve();
    };
  });
  const made = await picoletHub(
    "os",
    "registry.example/os:2",
    "--all",
    "--name=r",
    `--max-unavailable=${MAX_UNAVAILABLE}`,
  );
  assert.equal(made.code, 0, made.stderr);
  assert.equal(
    made.stdout,
    "rollout r: 10 boards, 3 at a time\npicolet-hub rollout status r --watch shows how it goes\n",
  );
  await half;
  const restarted = Promise.withResolvers<void>();
  hubServes = () => restarted.promise;
  await hub.endHub("SIGKILL");
  await hub.startHub();
  restarted.resolve();
  const { code, stdout, stderr } = await picoletHub("status", "r", "--watch");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /\nComplete: 10 of 10 boards done\n$/);
  assert.equal(boards.failure, undefined);
  assert.ok(boards.mostOff <= MAX_UNAVAILABLE, `${boards.mostOff} boards were off at a time`);
  assert.equal(done, BOARDS, "each board was updated once");
});

test("a rollout whose boards fail stops, and says which and why", async () => {
  boards.endOf = (node) => (node === "b1" || node === "b2" ? "failed" : "good");
  const flags = ["--all", "--name=bad", "--max-unavailable=1", "--max-failures=2", "--bandwidth=256Ki"];
  assert.equal((await picoletHub("os", "registry.example/os:3", ...flags)).code, 0);
  const { code, stdout, stderr } = await picoletHub("status", "bad", "--watch");
  assert.equal(code, 1);
  assert.match(stdout, /\nb1: failed: the bundle's signature is wrong\nb2: failed: the bundle's signature is wrong\n$/);
  assert.match(stderr, /^picolet-hub: rollout bad stopped: 2 boards failed, at the limit of 2, such as b2: /);
  const { items } = await admin.client.list(NODES, {}, NEVER);
  const tried = items.filter(({ metadata }) => metadata.annotations?.[OS] === "registry.example/os:3");
  assert.deepEqual(tried.map(({ metadata }) => metadata.name).sort(), ["b0", "b1", "b2"]);
  boards.endOf = () => "good";
});

test("a board that is away holds up no other, and is done when it comes", async () => {
  const metadata = { name: "late0", labels: { "picolet.io/hub": "picolet" } };
  const node = { apiVersion: "v1", kind: "Node", metadata, spec: {} };
  await admin.client.create(NODES, { namespace: "", name: "late0" }, node, {}, NEVER);
  assert.equal((await picoletHub("os", "registry.example/os:4", "--all", "--name=s", "--canary=1")).code, 0);
  const following = spawn(PROGRAM, ["rollout", "status", "s", "--watch", ...at()]);
  await untilPrinted(following, (text) => text.includes("\nAwaiting: 10 of 11 boards done, 1 away\n"));
  const late = await PlayedBoards.start(1, "late");
  const rest = await untilPrinted(following, (text) => text.endsWith("Complete: 11 of 11 boards done\n"));
  assert.match(rest, /^Progressing: 10 of 11 boards done/);
  late.end();
  await endProcess(following);
});
