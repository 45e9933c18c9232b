/** The files that the adapter and a runner write for each other. Both are of the same version. */

import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import type { FunctionType } from "../binary/function-types.ts";
import type { ModuleMemory } from "../binary/memory-limits.ts";
import type { LogLevel } from "../board/logging/grant.ts";
import type { ServeOptions } from "../grants/http-options.ts";
import type { NetworkRules } from "../network/network-rules.ts";

/** One container, in `launch.json`. */
export interface RunnerLaunch {
  readonly component: TranspiledComponent;
  /** Bytes that each of the component's linear memories may grow to; undefined: as it declares. */
  readonly memoryLimitBytes: number | undefined;
  readonly args: readonly string[];
  readonly env: readonly (readonly [name: string, value: string])[];
  readonly workingDir: string | undefined;
  /** A time that has passed, in milliseconds since 1970. A clock before it has not been set since the board started. */
  readonly timeFloorMs: number;
  readonly mounts: readonly MountLaunch[];
  /** True when the component waits for more than time, so that its stack has to be set aside while it waits. */
  readonly eventLoop: boolean;
  /** The peers that it may reach; undefined: no network at all. */
  readonly network: NetworkRules | undefined;
  /** Its interfaces of the board; undefined: none. */
  readonly board:
    | (BoardLaunch & {
        readonly serviceDirectory: string;
        /** Path of koffi.node, for a component with devices; undefined: it has none. */
        readonly addonPath?: string | undefined;
        /** Folder of the library that computes models, for a component that has them computed; undefined: it has none. */
        readonly inferencePath?: string | undefined;
      })
    | undefined;
  /** True when it imports wasi:http. */
  readonly http: boolean;
  /**
   * PEM of the CAs that its https requests trust beside the built-in ones; undefined: none, or it makes no requests.
   */
  readonly authorities: string | undefined;
  /** Undefined: it is run, not served. */
  readonly serve: ServeOptions | undefined;
  /** A component of WASI 0.3. */
  readonly p3: boolean;
  /** True when it imports wasi:sockets of WASI 0.3. */
  readonly sockets: boolean;
  /** An empty directory, for the places that only mounted files make. */
  readonly emptyDirectory: string;
  readonly logPath: string;
  /** How large that file may become; undefined: as large as it will. */
  readonly logLimit?: LogLimitLaunch | undefined;
  /** The file for a `RunnerEnd`, the reason of an end that is more than an exit code. */
  readonly endPath: string;
  /** The user and groups that the runner takes before it loads the component; undefined: it keeps its own. */
  readonly identity: Identity | undefined;
}

export interface BoardLaunch {
  readonly interfaces: readonly BoardInterface[];
  /** The pod, as `node-info` reports it. */
  readonly pod: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly container: string;
  };
  /** The mount whose files are the configuration, as the component sees it; undefined: there is none. */
  readonly configPath: string | undefined;
  /** The mount whose models are loaded by name, as the component sees it; undefined: there is none. */
  readonly modelPath?: string | undefined;
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
  /** The name by which the script loads it. The directory has a file of this name. */
  readonly name: string;
  readonly memories: readonly ModuleMemory[];
  /** Types of the functions that it imports, in their order; null: a type that no component has. */
  readonly functions: readonly (FunctionType | null)[];
}

export interface RunnerEnd {
  /** `start`: it never got as far as running; `trap`: it was ended by a fault of its own. */
  readonly kind: "start" | "trap";
  readonly message: string;
}

/** The file descriptor on which a runner reports once that the component is instantiated and about to run. */
export const STARTED_FD = 3;
export const STARTED_MESSAGE = "started\n";

/** Written instead when a mount differs from what the node has mounted for it. Nothing has run then. */
export const STALE_WORD = "stale\n";

/** Behind the launch's path: the runner waits for the end of its input here before it reads the launch. */
export const SPARE_ARGUMENT = "spare";
export const SPARE_FD = 5;

/** Bounds the message of a `RunnerEnd`. Kubernetes' limit for a termination message is the same. */
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
  /** The expected `mountStamp`; missing: any. */
  readonly stamp?: string | undefined;
}

/**
 * Identifies a file or folder, also after it is written. A file system keeps its device number while it is mounted
 * anywhere, so that the current mount differs from what it hides, and from what a process that missed the change still
 * has there. The number of the mount itself differs between namespaces.
 */
export const mountStamp = ({ dev, ino }: { readonly dev: bigint; readonly ino: bigint }): string => `${dev}:${ino}`;

export interface LogLimitLaunch {
  /** `containerLogMaxSize`. */
  readonly maxBytes: number;
  /** Bounds the wait of a component for the rotation. After it no agent is assumed to run. */
  readonly patienceMs: number;
}
