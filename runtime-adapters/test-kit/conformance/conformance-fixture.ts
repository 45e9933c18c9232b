/** Types of an adapter under test: its fixture, the programs that run on it, the features that it may lack. */
import type { DesiredPod, RuntimeAdapter, SandboxLaunch } from "@picolet/runtime-contract/runtime-adapter.ts";

/**
 * Features that a runtime may lack by its nature; the cases that need one are then not registered, and reported as
 * such.
 */
export type ConformanceFeature = "hints" | "ignoreTerm" | "cgroups" | "mounts" | "exec" | "upgrade";

export interface Program {
  /** As a pod would name it; on this runtime already, so that `images.status` finds it. */
  readonly image: string;
  readonly command: readonly string[];
  readonly args: readonly string[];
}

export interface ProgramLine {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

export interface ConformancePrograms {
  /** Until a signal ends it: exit code 143 after SIGTERM, 137 after SIGKILL. */
  readonly runForever: Program;
  /** Ends at once by itself. */
  exitWith(code: number): Program;
  /** Exit codes that `exitWith` supports: 0 and at least one more. */
  readonly exitCodes: readonly number[];
  /** Prints the lines, in this order, and ends with 0. */
  printLines(lines: readonly ProgramLine[]): Program;
  /** Prints `line 0`, `line 1`, … on stdout for ever, some ten a second; ends at SIGTERM. */
  readonly countForever: Program;
  /** Prints the value of one environment variable on stdout and ends with 0. */
  printEnvironment(name: string): Program;
  /** Runs for ever, and prints a line once it does not end at SIGTERM. Feature `ignoreTerm`. */
  readonly ignoreTerm?: Program;
  /** Prints a file's content on stdout and ends with 0. Feature `mounts`. */
  printFile?(path: string): Program;
  /** Commands to run in a container of `runForever` or `countForever`. Feature `exec`. */
  readonly commands?: ConformanceCommands;
  /** Echoes what a client sends to this port of the pod. Feature `upgrade`. */
  echoServer?(port: number): Program;
}

export interface ConformanceCommands {
  /** Prints the lines and ends with `code`. */
  printAndExit(lines: readonly ProgramLine[], code: number): readonly string[];
  readonly neverEnds: readonly string[];
  /** Reads one line and prints `got: <line>`. Feature `upgrade`. */
  readonly answerLine: readonly string[];
  /** Waits for a line, then prints the terminal's size as `<rows> <columns>`. Feature `upgrade`. */
  readonly terminalSize: readonly string[];
}

/** cgroup v1's names; on v2 the fixture converts. Sets hold one CPU or node alone, which is the number. */
export type CgroupValue = "cpu.shares" | "cpu.cfs_quota_us" | "memory.limit_in_bytes" | "cpuset.cpus" | "cpuset.mems";

/** One runtime with none of our pods in it. Disposing takes away all that the case made. */
export interface ConformanceFixture extends AsyncDisposable {
  readonly adapter: RuntimeAdapter;
  readonly programs: ConformancePrograms;
  /**
   * Ends the agent as kill -9 would (without notice to the runtime), runs `meanwhile` with no agent alive, and returns
   * a new adapter on the same runtime state. The previous adapter must not be used any more.
   */
  restartAgent(meanwhile?: () => Promise<void>): Promise<RuntimeAdapter>;
  /** A signal to the workload's first process from outside, past the runtime. */
  killWorkload(containerId: string, signal: "SIGKILL" | "SIGTERM"): Promise<void>;
  /** Makes what the agent makes before a sandbox: the log directory, and the pod's cgroup where there are cgroups. */
  preparePod(pod: DesiredPod): Promise<Pick<SandboxLaunch, "logDirectory" | "cgroupParent">>;
  /** A value of the container's own cgroup, from the file system. `undefined`: no cgroups on this machine. */
  readCgroup(containerId: string, value: CgroupValue): Promise<number | undefined>;
  /** A folder of the host that holds the one file `name`. Feature `mounts`. */
  hostFolder?(name: string, content: string): Promise<string>;
  /** The content of a log file, "" while there is none. */
  readLog(path: string): Promise<string>;
  renameLog(from: string, to: string): Promise<void>;
  /** Lets something happen: a short wait on a real runtime, a step of the clock on a virtual one. */
  settle(): Promise<void>;
}
