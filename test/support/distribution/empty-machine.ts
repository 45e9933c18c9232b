/**
 * A machine with nothing but a few programs of Debian's base system and their libraries: a root directory of its own,
 * entered in a mount namespace in which no other file of this machine can be reached. What is copied to it has to be
 * complete.
 */
import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readlinkSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { TempFolder } from "../unit/machine/temp-folder.ts";

/** Launchers, jails and reapers call these programs of dash, coreutils and util-linux. */
const PROGRAMS = ["sh", "readlink", "sleep", "du", "mount", "umount", "unshare", "pivot_root", "setpriv", "nsenter"];
const RUN_LIMIT_MS = 120_000;
/** The links of a merged /usr. */
const ALIASES = ["bin", "sbin", "lib", "lib64"];
const MOUNT_POINTS = ["proc", "sys", "dev", "etc", "tmp", "old"];

/** Arguments: the root, the number of shared folders, these, then the command. */
const ENTER = `
set -eu
root=$1 count=$2
shift 2
mount --rbind "$root" "$root"
mount -t proc proc "$root/proc"
for each in sys dev; do mount --rbind "/$each" "$root/$each"; done
while [ "$count" -gt 0 ]; do
  mount --rbind "$1" "$root$1"
  shift
  count=$((count - 1))
done
cd "$root"
pivot_root . old
cd /
umount -l /old
exec "$@"
`;

/** Why none can be made here; false: one can. */
export function emptyMachineMissing(): string | false {
  if (process.getuid?.() !== 0) return "a root directory of its own needs root";
  const missing = PROGRAMS.filter((name) => programPath(name) === "");
  return missing.length === 0 ? false : `not installed: ${missing.join(", ")}`;
}

export class EmptyMachine implements Disposable {
  readonly #folder = new TempFolder();
  readonly #root = this.#folder.at("root");

  constructor() {
    mkdirSync(this.#root);
    for (const name of ALIASES) {
      if (!lstatSync(`/${name}`, { throwIfNoEntry: false })?.isSymbolicLink()) continue;
      const target = readlinkSync(`/${name}`);
      mkdirSync(join(this.#root, target), { recursive: true });
      symlinkSync(target, join(this.#root, name));
    }
    for (const name of MOUNT_POINTS) mkdirSync(join(this.#root, name));
    for (const name of PROGRAMS) this.#copyWithLibraries(programPath(name));
  }

  /** Copies a file or a folder to `path`, and the system's libraries that its programs and addons are linked with. */
  install(source: string, path: string): void {
    const target = join(this.#root, path);
    cpSync(source, target, { recursive: true });
    for (const file of filesBelow(target)) if (/(?:^|[/.])node$/.test(file)) this.#copyLibraries(file);
  }

  write(path: string, content: string): void {
    writeFileSync(join(this.#root, path), content);
  }

  /**
   * @param shared folders of this machine that the command sees where they are here
   * @returns a command that runs `command` there, in the process that it is started as
   */
  command(command: readonly string[], shared: readonly string[] = []): readonly [program: string, ...args: string[]] {
    for (const each of shared) mkdirSync(this.#root + each, { recursive: true });
    const args = [this.#root, String(shared.length), ...shared, ...command];
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", ENTER, "enter", ...args];
  }

  /** @returns what it printed @throws with what it said when it ends with another code than 0 */
  run(command: readonly string[], shared: readonly string[] = []): string {
    const [program, ...args] = this.command(command, shared);
    const { status, stdout, stderr } = spawnSync(program, args, { encoding: "utf8", timeout: RUN_LIMIT_MS });
    if (status !== 0) throw new Error(`${command.join(" ")} ended with ${status}: ${stderr}${stdout}`);
    return stdout;
  }

  #copyWithLibraries(path: string): void {
    this.#copy(path);
    this.#copyLibraries(path);
  }

  #copyLibraries(path: string): void {
    const lines = execFileSync("ldd", [path], { encoding: "utf8" }).split("\n");
    for (const line of lines) {
      const library = /(\/\S+) \(0x/.exec(line)?.[1];
      if (library !== undefined) this.#copy(library);
    }
  }

  #copy(path: string): void {
    const target = join(this.#root, path);
    if (existsSync(target)) return;
    mkdirSync(dirname(target), { recursive: true });
    copyFileSync(path, target);
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

function filesBelow(path: string): readonly string[] {
  if (!lstatSync(path).isDirectory()) return [path];
  const entries = readdirSync(path, { recursive: true, withFileTypes: true });
  return entries.filter((each) => each.isFile()).map(({ parentPath, name }) => join(parentPath, name));
}

function programPath(name: string): string {
  const folders = ["/usr/bin", "/usr/sbin", "/bin", "/sbin"];
  return folders.map((folder) => `${folder}/${name}`).find(existsSync) ?? "";
}
