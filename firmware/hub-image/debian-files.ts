/**
 * Files of Debian packages for any architecture, without an installation: apt verifies and fetches the packages with a
 * state of its own, from the machine's own mirror and with its keyring.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { extname, join, resolve } from "node:path";
import { PicoletError } from "@picolet/protocol/errors.ts";

const CACHE = "node_modules/.cache/picolet/debian";

export interface DebianFilesInit {
  /** Debian's code name. */
  readonly suite: string;
  /** As Debian names it: `amd64`, `arm64`. */
  readonly architecture: string;
  readonly packages: readonly string[];
}

/** A package whose file has been fetched and verified. */
export interface FetchedPackage {
  readonly name: string;
  readonly version: string;
  /** The `.deb`. */
  readonly file: string;
  readonly sha256: string;
  /** Its control file. */
  readonly control: string;
}

/** Sorted by name. @throws `failed` with what apt says */
export function fetchDebianPackages({ suite, architecture, packages }: DebianFilesInit): readonly FetchedPackage[] {
  const state = resolve(CACHE, `${suite}-${architecture}`);
  for (const folder of ["lists/partial", "cache/archives/partial", "parts"])
    mkdirSync(join(state, folder), { recursive: true });
  writeFileSync(join(state, "status"), "");
  const { text, ending } = debianSources(suite);
  writeFileSync(join(state, `parts/debian${ending}`), text);
  const options = [
    ...["Dir::Etc::sourcelist=/dev/null", `Dir::Etc::sourceparts=${state}/parts`],
    ...[`Dir::State::lists=${state}/lists`, `Dir::State::status=${state}/status`, `Dir::Cache=${state}/cache`],
    ...[`APT::Architecture=${architecture}`, `APT::Architectures=${architecture}`, "Acquire::Languages=none"],
    // It has no rights to a folder below /root or a home.
    "APT::Sandbox::User=root",
  ].flatMap((each) => ["-o", each]);
  const folder = mkdtempSync(join(state, "fetch-"));
  const apt = (...words: string[]): void => {
    // Another process that uses the same state is waited for; apt itself would fail.
    execFileSync("flock", [join(state, "in-use"), "apt-get", "-qq", ...options, ...words], {
      cwd: folder,
      stdio: ["ignore", "ignore", "pipe"],
    });
  };
  try {
    apt("update");
    apt("download", ...packages);
    const files = readdirSync(folder).map((name) => keep(join(folder, name), state));
    return files.map(describe).sort((one, other) => (one.name < other.name ? -1 : 1));
  } catch (cause) {
    throw new PicoletError("failed", `cannot fetch Debian's packages for ${suite} and ${architecture}`, { cause });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/**
 * The machine's own sources of Debian's packages with another suite.
 * @returns the text, and the ending of a file's name by which apt knows its format: `.list` or `.sources`
 */
export function debianSources(suite: string): { readonly text: string; readonly ending: string } {
  const own = /^VERSION_CODENAME=(.*)$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "";
  const candidates = globSync(["/etc/apt/sources.list.d/debian*.sources", "/etc/apt/sources.list"]);
  const found = candidates.find((each) => existsSync(each) && readFileSync(each, "utf8").includes(own));
  if (own === "" || found === undefined) throw new PicoletError("not_found", "this machine has no sources of Debian");
  const text = readFileSync(found, "utf8").replaceAll(new RegExp(`\\b${own}\\b`, "g"), suite);
  return { text, ending: extname(found) };
}

/** Moves it to where it has a name of its own. */
function keep(path: string, state: string): string {
  const bytes = readFileSync(path);
  const target = join(state, "cache/archives", `${createHash("sha256").update(bytes).digest("hex")}.deb`);
  writeFileSync(target, bytes);
  return target;
}

function describe(file: string): FetchedPackage {
  const control = execFileSync("dpkg-deb", ["--field", file], { encoding: "utf8" });
  const field = (name: string): string => new RegExp(`^${name}: (.*)$`, "m").exec(control)?.[1] ?? "";
  const sha256 = createHash("sha256").update(readFileSync(file)).digest("hex");
  return { name: field("Package"), version: field("Version"), file, sha256, control };
}
