import assert from "node:assert/strict";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { millis } from "@picolet/protocol/ports.ts";
import { TempFolder } from "@picolet/test/support/unit/machine/temp-folder.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { ContainerdServices } from "../wire/containerd-services.ts";
import { endLeakedShims } from "./leaked-shims.ts";

const unused = (): never => assert.fail("nothing else is asked");
const NEVER = new AbortController().signal;
const SHIM = "containerd-shim";
const SOCKET = "/run/containerd/containerd.sock";
/** Seconds. */
const UPTIME = 10_000;
const idOf = (digit: string): string => digit.repeat(64);

/** A process as /proc shows it; by default a shim of this containerd, an hour old, that has nothing in it. */
interface Shown {
  readonly pid: number;
  readonly parent?: number;
  readonly command?: string;
  readonly address?: string;
  readonly cwd?: string;
  readonly namespace?: string;
  readonly id?: string;
  readonly ageSeconds?: number;
  /** The process's root; default: the node's. */
  readonly root?: string;
}

const LOST = "/run/tasks/.a (deleted)";
const THERE = "/run/tasks/a";

type Answer = "known" | "not_found" | "unimplemented" | "unavailable";

class Bench {
  readonly folder = new TempFolder();
  readonly killed: number[] = [];
  /** containerd's answers to lookups by id; other ids are not found. */
  readonly known = new Map<string, Answer>();
  containers: readonly { readonly id: string; readonly podSandboxId: string }[] = [];
  asked = 0;
  /** While containerd is asked. */
  meanwhile = (): void => undefined;
  readonly #root: string;

  constructor(context: TestContext) {
    context.after(() => this.folder[Symbol.dispose]());
    this.#root = this.#newRoot("root");
  }

  /** With a containerd in it. */
  #newRoot(name: string): string {
    const root = this.folder.at(name);
    mkdirSync(`${root}/run/containerd`, { recursive: true });
    writeFileSync(root + SOCKET, "");
    return root;
  }

  otherRoot(): string {
    return this.#newRoot("elsewhere");
  }

  show(...processes: readonly Shown[]): void {
    mkdirSync(this.folder.at("proc"), { recursive: true });
    writeFileSync(this.folder.at("proc", "uptime"), `${UPTIME}.00 1.00\n`);
    for (const shown of processes) {
      const { pid, parent = 1, command = SHIM, address = SOCKET, cwd = THERE, namespace = "k8s.io" } = shown;
      const { id = idOf("a"), ageSeconds = 3600, root = this.#root } = shown;
      const own = this.folder.at("proc", String(pid));
      mkdirSync(own);
      const start = (UPTIME - ageSeconds) * 100;
      writeFileSync(`${own}/stat`, `${pid} (${command}) S ${parent} 1 1 0 ${"0 ".repeat(14)}${start} 1`);
      const words = ["/usr/bin/containerd-shim-runc-v2", "-namespace", namespace, "-id", id, "-address", address];
      writeFileSync(`${own}/cmdline`, `${words.join("\0")}\0`);
      symlinkSync(cwd, `${own}/cwd`);
      symlinkSync(root, `${own}/root`);
    }
  }

  async end(): Promise<readonly number[]> {
    const call = async (method: { readonly path: string }, request: object): Promise<unknown> => {
      this.asked += 1;
      this.meanwhile();
      if (method.path.endsWith("/ListContainers")) return { containers: this.containers };
      const service = /\.(\w+)\/Get$/.exec(method.path)?.[1];
      const answer = this.known.get(`${service} ${Object.values(request)[0]}`) ?? "not_found";
      if (answer === "known") return {};
      throw new PicoletError(answer, "no");
    };
    const grpc = { unary: call, serverStream: unused };
    const containerd = new ContainerdServices({ clock: new VirtualClock(), grpc } as never, {
      requestTimeoutMs: 1_000,
    });
    const client = { socketPath: this.#root + SOCKET, call, containerd };
    const ended = await endLeakedShims(client as never, NEVER, {
      procRoot: this.folder.at("proc"),
      minAge: millis(600_000),
      end: ({ pid }) => void this.killed.push(pid),
    });
    assert.deepEqual(this.killed, ended);
    return ended;
  }
}

test("a shim is ended whose folder is gone and in which nothing runs; no other, and nothing that is no shim", async (context) => {
  const bench = new Bench(context);
  bench.show(
    { pid: 10, cwd: LOST },
    { pid: 11, cwd: LOST, ageSeconds: 1, namespace: "default" },
    { pid: 12, cwd: LOST },
    { pid: 13, cwd: LOST, parent: 12, command: "pause) S 10 (" },
    { pid: 14, cwd: LOST, address: "/run/other/containerd.sock" },
    { pid: 15, cwd: LOST, command: "sh" },
    { pid: 16, cwd: LOST, address: "" },
    { pid: 18, cwd: LOST, root: bench.otherRoot() },
  );
  mkdirSync(bench.folder.at("proc", "17"));
  mkdirSync(bench.folder.at("proc", "self"));
  assert.deepEqual(await bench.end(), [10, 11]);
  assert.equal(bench.asked, 0, "containerd cannot know of it");
});

test("a shim that has its folder is ended when containerd says that it knows nothing of it", async (context) => {
  const bench = new Bench(context);
  bench.show({ pid: 20 });
  bench.known.set(`Store ${idOf("a")}`, "unimplemented");
  assert.deepEqual(await bench.end(), [20]);
});

const KEPT: Readonly<Record<string, (bench: Bench) => Shown>> = {
  "is young": () => ({ pid: 20, ageSeconds: 599 }),
  "has a process in it": (bench) => {
    bench.show({ pid: 21, parent: 20, command: "pause" });
    return { pid: 20 };
  },
  "is of another containerd's socket": () => ({ pid: 20, address: "/run/other/containerd.sock" }),
  "is of a containerd in a container, with a socket of the same name": (bench) => ({
    pid: 20,
    root: bench.otherRoot(),
  }),
  "is of another tool's namespace": () => ({ pid: 20, namespace: "moby" }),
  "has an id that CRI would not give": () => ({ pid: 20, id: "my-debugging" }),
  "has a container": (bench) => {
    bench.known.set(`Containers ${idOf("a")}`, "known");
    return { pid: 20 };
  },
  "has a task": (bench) => {
    bench.known.set(`Tasks ${idOf("a")}`, "known");
    return { pid: 20 };
  },
  "has a sandbox": (bench) => {
    bench.known.set(`Store ${idOf("a")}`, "known");
    return { pid: 20 };
  },
  "has a container of its sandbox, perhaps another agent's": (bench) => {
    bench.containers = [{ id: idOf("b"), podSandboxId: idOf("a") }];
    return { pid: 20 };
  },
  "cannot be asked about": (bench) => {
    bench.known.set(`Tasks ${idOf("a")}`, "unavailable");
    return { pid: 20 };
  },
  "gets a process while containerd is asked": (bench) => {
    bench.meanwhile = () => {
      bench.meanwhile = () => undefined;
      bench.show({ pid: 21, parent: 20, command: "runc" });
    };
    return { pid: 20 };
  },
};

for (const [what, make] of Object.entries(KEPT)) {
  test(`a shim with its folder stays when it ${what}`, async (context) => {
    const bench = new Bench(context);
    bench.show(make(bench));
    assert.deepEqual(await bench.end(), []);
  });
}

test("here nothing of a runtime that is not there is found", async () => {
  const call = () => assert.fail("no call is needed");
  const containerd = { knowsNothingOf: call };
  assert.deepEqual(await endLeakedShims({ socketPath: "/nowhere/containerd.sock", call, containerd }, NEVER), []);
});
