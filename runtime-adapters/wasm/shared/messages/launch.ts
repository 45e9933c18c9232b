/** What the adapter tells a runner, and what the runner tells back. Files between two programs of the same version. */

import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import type { FunctionType } from "../binary/function-types.ts";
import type { ModuleMemory } from "../binary/memory-limits.ts";
import type { LogLevel } from "../board/logging/grant.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import type { NetworkRules } from "../network/network-rules.ts";

/** One container, in `launch.json`. */
export interface RunnerLaunch {
  readonly component: TranspiledComponent;
  /** Bytes of linear memory that each of the component's memories may grow to; undefined: what it declares. */
  readonly memoryLimitBytes: number | undefined;
  readonly args: readonly string[];
  readonly env: readonly (readonly [name: string, value: string])[];
  readonly workingDir: string | undefined;
  /**
   * Milliseconds since 1970: what is known to be over. A clock that says less has not been set since the board started.
   */
  readonly timeFloorMs: number;
  readonly mounts: readonly MountLaunch[];
  /** Whether the component waits for more than time, so that its stack has to be set aside while it does. */
  readonly eventLoop: boolean;
  /** What it may reach; undefined: no network at all. */
  readonly network: NetworkRules | undefined;
  /** What of the board it is given; undefined: nothing. */
  readonly board:
    | (BoardLaunch & {
        readonly serviceDirectory: string;
        /** Of koffi.node, for a component with devices; undefined: it has none. */
        readonly addonPath?: string | undefined;
      })
    | undefined;
  /** Whether it imports wasi:http. */
  readonly http: boolean;
  /** PEM of those that its https requests trust beside the built-in ones; undefined: nobody, or it makes none. */
  readonly authorities: string | undefined;
  /** Undefined: it is run, not served. */
  readonly serve: ServeOptions | undefined;
  /** A component of WASI 0.3. */
  readonly p3: boolean;
  /** Whether it imports wasi:sockets of WASI 0.3. */
  readonly sockets: boolean;
  /** An empty directory, for the places that only mounted files make. */
  readonly emptyDirectory: string;
  readonly logPath: string;
  /** How large that file may become; undefined: as large as it will. */
  readonly logLimit?: LogLimitLaunch | undefined;
  /** Where the runner says why it ended, when it is more than an exit code: a `RunnerEnd`. */
  readonly endPath: string;
  /** What the runner becomes before it touches the component; undefined: it stays what it is. */
  readonly identity: Identity | undefined;
}

export interface BoardLaunch {
  readonly interfaces: readonly BoardInterface[];
  /** What `node-info` says of the pod. */
  readonly pod: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly container: string;
  };
  /** Of the mount whose files are the configuration, as the component sees it; undefined: there is none. */
  readonly configPath: string | undefined;
  readonly logLevel: LogLevel;
  /** By which the agent knows this container, on the socket in `serviceDirectory`; undefined: it is not asked. */
  readonly token: string | undefined;
}

export interface Identity {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

/** For a process that is root, or may become this one. */
export function switchUser({ uid, gid, groups }: Identity): void {
  process.setgroups?.([...groups]);
  process.setgid?.(gid);
  process.setuid?.(uid);
}

/** A component as the transpiler left it in the cache. */
export interface TranspiledComponent {
  /** Absolute. */
  readonly directory: string;
  /** Body of the function that returns jco's `instantiate`. */
  readonly script: string;
  readonly modules: readonly TranspiledModule[];
}

export interface TranspiledModule {
  /** As the script asks for it; a file of this name is in the directory. */
  readonly name: string;
  readonly memories: readonly ModuleMemory[];
  /** Of the functions that it imports, in their order; null: one that no component has. */
  readonly functions: readonly (FunctionType | null)[];
}

export interface RunnerEnd {
  /** `start`: it never got as far as running; `trap`: it was ended by a fault of its own. */
  readonly kind: "start" | "trap";
  readonly message: string;
}

/** The file descriptor on which a runner says once that the component is instantiated and about to run. */
export const STARTED_FD = 3;
export const STARTED_MESSAGE = "started\n";

/** What it says instead when it sees something else than the node has mounted for it; nothing has been run then. */
export const STALE_WORD = "stale\n";

/** Behind the launch's path: the runner waits for the end of its input here before it reads the launch. */
export const SPARE_ARGUMENT = "spare";
export const SPARE_FD = 5;

/** Of a `RunnerEnd`; Kubernetes' limit for a container's termination message is the same. */
export const MAX_END_MESSAGE_LENGTH = 4096;

/** As JSON, with every character of its message escaped; another end of more is none. */
export const MAX_END_BYTES = 65_536;

/** A component that traps has no exit code of its own. */
export const TRAP_EXIT_CODE = 1;

export interface MountLaunch {
  /** Absolute, as the component sees it. */
  readonly guestPath: string;
  /** Absolute; a directory or a file. */
  readonly hostPath: string;
  readonly readOnly: boolean;
  /** `mountStamp` of what is to be there; missing: whatever is there. */
  readonly stamp?: string | undefined;
}

/**
 * Of a file or a folder, whatever is written to it meanwhile. A file system is a device of its own as long as anybody
 * has it mounted, so that what is mounted there now differs from what it hides, and from what a process that missed the
 * change still has there. The mount's own number would say nothing: each namespace counts for itself.
 */
export const mountStamp = ({ dev, ino }: { readonly dev: bigint; readonly ino: bigint }): string => `${dev}:${ino}`;

export interface LogLimitLaunch {
  /** `containerLogMaxSize`. */
  readonly maxBytes: number;
  /** How long a component waits for the rotation before it is taken that no agent is there. */
  readonly patienceMs: number;
}
