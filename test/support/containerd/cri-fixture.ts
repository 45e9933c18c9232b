/** The conformance suite's fixture on a real containerd, and other tests' hands on one. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { makeOomKillLog } from "@picolet/agent/main/pods/oom.ts";
import { systemClock } from "@picolet/protocol/async/system-clock.ts";
import type { Log } from "@picolet/protocol/ports.ts";
import type { DesiredPod } from "@picolet/runtime-contract/runtime-adapter.ts";
import type { CriAdapter, CriAdapterInit } from "@picolet/runtime-cri/cri-adapter.ts";
import type {
  CgroupValue,
  ConformanceFixture,
  ConformancePrograms,
  Program,
  ProgramLine,
} from "@picolet/runtime-test-kit/conformance/conformance-fixture.ts";
import { criAdapter } from "../unit/cri/cri-adapters.ts";
import { removeCgroups } from "../unit/machine/test-cgroups.ts";
import { RecordedLog } from "../unit/ports/recorders.ts";
import type { Containerd } from "./containerd.ts";
import { BUSYBOX_IMAGE } from "./test-images.ts";

const SETTLE_MS = 20;

const shell = (script: string, ...args: readonly string[]): Program => ({
  image: BUSYBOX_IMAGE,
  command: ["/bin/sh", "-c", script],
  args: args.length === 0 ? [] : ["sh", ...args],
});

const printed = (lines: readonly ProgramLine[]): string =>
  lines.map(({ stream, text }) => `echo '${text}'${stream === "stderr" ? " >&2" : ""};`).join(" ");

/** The suite's programs, as busybox commands. */
export const BUSYBOX_PROGRAMS: ConformancePrograms = {
  runForever: shell("trap 'exit 143' TERM; while :; do sleep 3600 & wait $!; done"),
  exitWith: (code) => shell(`exit ${code}`),
  exitCodes: [0, 1, 3, 42, 126, 127, 255],
  printLines: (lines) =>
    shell(
      'while [ $# -gt 0 ]; do if [ "$1" = stdout ]; then printf "%s\\n" "$2"; else printf "%s\\n" "$2" >&2; fi; shift 2; done',
      ...lines.flatMap(({ stream, text }) => [stream, text]),
    ),
  countForever: shell('trap "exit 143" TERM; i=0; while :; do echo "line $i"; i=$((i+1)); sleep 0.1; done'),
  printEnvironment: (name) => shell(`printf "%s\\n" "$${name}"`),
  ignoreTerm: shell("trap '' TERM; echo deaf; while :; do sleep 1; done"),
  printFile: (path) => ({ image: BUSYBOX_IMAGE, command: ["/bin/cat", path], args: [] }),
  commands: {
    printAndExit: (lines, code) => ["/bin/sh", "-c", `${printed(lines)} exit ${code}`],
    neverEnds: ["/bin/sleep", "3600"],
    answerLine: ["/bin/sh", "-c", 'read line; echo "got: $line"'],
    terminalSize: ["/bin/sh", "-c", "while read line; do stty size; done"],
  },
  echoServer: (port) => shell(`exec nc -ll -p ${port} -e /bin/cat`),
};

/** Pods of one owner on a containerd that others may use as well; disposing removes them with all that was made. */
export class CriFixture implements ConformanceFixture {
  readonly programs = BUSYBOX_PROGRAMS;
  readonly directory = mkdtempSync(join(tmpdir(), "picolet-cri-"));
  readonly #containerd: Containerd;
  /** As an agent has it: containerd may lose sight of a kill, and never finds it again. */
  readonly #killed = makeOomKillLog({ log: new RecordedLog(), clock: systemClock });
  readonly #owner = this.directory.slice(-6);
  readonly #cgroup = `/picolet-test-${this.#owner}`;
  #adapter: CriAdapter;

  readonly #socketPath: string;

  /** @param socketPath what the adapter is given, where that is not containerd's own */
  constructor(containerd: Containerd, socketPath = containerd.socketPath) {
    this.#containerd = containerd;
    this.#socketPath = socketPath;
    this.#adapter = this.newAdapter();
  }

  get adapter(): CriAdapter {
    return this.#adapter;
  }

  newAdapter(options: Partial<CriAdapterInit> & { log?: Log } = {}): CriAdapter {
    return criAdapter(this.#socketPath, { owner: this.#owner, killed: this.#killed, ...options });
  }

  async restartAgent(meanwhile?: () => Promise<void>): Promise<CriAdapter> {
    await this.#adapter[Symbol.asyncDispose]();
    await meanwhile?.();
    this.#adapter = this.newAdapter();
    return this.#adapter;
  }

  async killWorkload(containerId: string, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    process.kill(this.#containerd.pidOf(containerId), signal);
  }

  async preparePod(pod: DesiredPod): Promise<{ logDirectory: string; cgroupParent: string }> {
    const { namespace, name } = pod.pod.metadata;
    const logDirectory = join(this.directory, "logs", `${namespace}_${name}_${pod.uid}`);
    mkdirSync(logDirectory, { recursive: true });
    return { logDirectory, cgroupParent: `${this.#cgroup}/pod${pod.uid}` };
  }

  async readCgroup(containerId: string, value: CgroupValue): Promise<number | undefined> {
    const folder = this.#containerd.cgroupsOf(containerId).get(value.slice(0, value.indexOf(".")));
    return folder === undefined ? undefined : Number(readFileSync(join(folder, value), "utf8"));
  }

  async hostFolder(name: string, content: string): Promise<string> {
    const folder = mkdtempSync(join(this.directory, "folder-"));
    writeFileSync(join(folder, name), content);
    return folder;
  }

  async readLog(path: string): Promise<string> {
    return existsSync(path) ? readFileSync(path, "utf8") : "";
  }

  async renameLog(from: string, to: string): Promise<void> {
    renameSync(from, to);
  }

  async settle(): Promise<void> {
    await pause(SETTLE_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const signal = AbortSignal.timeout(60_000);
    const adapter = await this.restartAgent();
    for (const { uid } of await adapter.list(signal)) {
      const { sandboxes, manifest } = await adapter.inspect(uid, signal);
      for (const { id } of sandboxes) {
        await adapter.apply(manifest ?? ({} as DesiredPod), { kind: "removeSandbox", sandboxId: id }, signal);
      }
    }
    await adapter[Symbol.asyncDispose]();
    this.#killed[Symbol.dispose]();
    await removeCgroups(this.#cgroup);
    rmSync(this.directory, { recursive: true });
  }
}
