/**
 * Checks the layers: which room may import which. A room is a folder with a row in the `rooms.json` of its package; or
 * files of one name in several folders, for which the row has a pattern with `*` (of several the longest). The row
 * names every room that its files import, and whether they use Node's own modules. The check fails for an import
 * without a row, for a row that nothing needs, for rooms and for files that import each other in a circle (types too;
 * what a file loads with `import()` does not count), and for a package that `package.json` does not name, or names and
 * no file needs. Rows of `test/` and `scripts/` name rooms of these two alone, because both may use all of the product.
 * Before it judges the tree it judges broken imports of each room.
 */
import { existsSync, readFileSync } from "node:fs";
import { dirname, posix, relative } from "node:path";
import { fileOf, sourceFilesOf, specifiersOf, type Workspace, workspacesOf } from "./source-tree.ts";

export interface Row {
  /** One plain sentence: what the room holds. */
  readonly owns: string;
  /** Rooms of the same package ("plan/") and of others ("@picolet/protocol/pod/"). */
  readonly imports: readonly string[];
  /** True when `node:` modules are allowed; default false. */
  readonly node?: boolean;
}

interface Package extends Workspace {
  readonly rooms: ReadonlyMap<string, Row>;
  readonly dependencies: ReadonlySet<string>;
  readonly devDependencies: ReadonlySet<string>;
}

/**
 * Packages that are no part of the product: they may import anything of the product that their `package.json` names,
 * and Node's own modules. Their rows are about their own rooms.
 */
const FREE = ["test/", "scripts/"];
const isFree = (path: string): boolean => FREE.some((folder) => path.startsWith(folder));
const isTest = (path: string): boolean => /\.test\.ts$/.test(path);
const TESTS = "test/";
/** Packages of others whose files are read or run, and not imported. */
const NOT_IMPORTED: ReadonlySet<string> = new Set(["node", "onnxruntime-web", "@bytecodealliance/jco"]);
/** All of them that tests beside the code may import: it needs nothing that is installed or built. */
const UNIT_SUPPORT = "test/support/unit/";
const SCOPE = "@picolet/";

type Manifest = Partial<Record<"dependencies" | "devDependencies", Record<string, string>>>;

const readJson = <T>(path: string): T => JSON.parse(readFileSync(path, "utf8")) as T;

function readPackage({ name, folder }: Workspace): Package {
  const { dependencies = {}, devDependencies = {} } = readJson<Manifest>(`${folder}package.json`);
  const table = `${folder}rooms.json`;
  return {
    name,
    folder,
    rooms: new Map(existsSync(table) ? Object.entries(readJson<Record<string, Row>>(table)) : []),
    dependencies: new Set(Object.keys(dependencies)),
    devDependencies: new Set(Object.keys(devDependencies)),
  };
}

const PACKAGES = workspacesOf(".").map(readPackage);

interface Place {
  readonly owner: Package;
  /** The folder of the file below its package, with a trailing slash, or the pattern that the file matches. */
  readonly room: string;
}

const isPattern = (room: string): boolean => room.includes("*");

function placeOf(path: string): Place | undefined {
  const owner = PACKAGES.find(({ folder }) => path.startsWith(folder));
  if (owner === undefined) return undefined;
  const below = path.slice(owner.folder.length);
  const patterns = [...owner.rooms.keys()].filter((room) => isPattern(room) && posix.matchesGlob(below, room));
  const [longest] = patterns.sort((a, b) => b.length - a.length);
  const folder = dirname(below);
  return { owner, room: longest ?? (folder === "." ? "./" : `${folder}/`) };
}

/** A file that the room could have. */
const fileIn = ({ owner, room }: Place): string => {
  if (isPattern(room)) return owner.folder + room.replaceAll("*", "x");
  return `${owner.folder}${room === "./" ? "" : room}x.ts`;
};

const packageOf = (specifier: string): string =>
  specifier
    .split("/")
    .slice(0, specifier.startsWith("@") ? 2 : 1)
    .join("/");

/** How a row names a room. */
const nameOf = (place: Place, from: Package): string =>
  place.owner === from ? place.room : `${place.owner.name}/${place.room === "./" ? "" : place.room}`;

/** Entries of rows and packages that a file needs, by the key `FOLDER ENTRY`; what no file needs is said. */
const needed = new Set<string>();

/** Finds imports by which the shared parts of unit tests depend on other test code or on scripts. */
function unitSupportViolations(path: string, source: string): string[] {
  return specifiersOf(path, source).flatMap((specifier) => {
    const file = fileOf(path, specifier, PACKAGES);
    return file !== undefined && isFree(file) && !file.startsWith(UNIT_SUPPORT)
      ? [`${path} must not import ${specifier}: it is outside ${UNIT_SUPPORT}`]
      : [];
  });
}

/** Finds packages that the file imports and `package.json` of its own package does not name. */
function unnamedPackages(path: string, source: string): string[] {
  const owner = PACKAGES.find(({ folder }) => path.startsWith(folder));
  return specifiersOf(path, source)
    .filter((specifier) => /^(?:@[\w-]+\/)?[\w-]+(?:\/|$)/.test(specifier))
    .map(packageOf)
    .filter((name) => owner !== undefined && name !== owner.name && !isNamed(owner, name))
    .map((name) => `${path} must not import ${name}: ${owner?.folder}package.json does not name it`);
}

function isNamed({ folder, dependencies, devDependencies }: Package, name: string, inTest = false): boolean {
  needed.add(`${folder} ${name}`);
  return dependencies.has(name) || (inTest && devDependencies.has(name));
}

/** Why the row does not let a file of the room import `file`; undefined: it does. */
function unnamedRoom({ owner, room }: Place, row: Row, file: string): string | undefined {
  const target = placeOf(file);
  if (target === undefined || (target.owner === owner && target.room === room)) return undefined;
  const entry = nameOf(target, owner);
  if (!row.imports.includes(entry)) return `"${room}" of ${owner.folder}rooms.json does not name "${entry}"`;
  needed.add(`${owner.folder}${room} ${entry}`);
  return undefined;
}

const BY_PATH = "name the package, not the path to it";

/** Finds imports by which a file of a package that is no part of the product breaks a rule. */
function freeViolations(path: string, source: string, place: Place, row: Row): string[] {
  const { folder } = place.owner;
  const isByPath = (specifier: string): boolean =>
    specifier.startsWith(".") && fileOf(path, specifier, PACKAGES)?.startsWith(folder) === false;
  const violations = [
    ...(path.startsWith(UNIT_SUPPORT) ? unitSupportViolations(path, source) : []),
    ...unnamedPackages(path, source),
    ...specifiersOf(path, source)
      .filter(isByPath)
      .map((specifier) => `${path} must not import ${specifier}: ${BY_PATH}`),
  ];
  if (isTest(path)) return violations;
  for (const specifier of specifiersOf(path, source)) {
    const file = fileOf(path, specifier, PACKAGES);
    const reason = file !== undefined && isFree(file) ? unnamedRoom(place, row, file) : undefined;
    if (reason !== undefined) violations.push(`${path} must not import ${specifier}: ${reason}`);
  }
  return violations;
}

/** One sentence for each import of `path` (relative to the root, with forward slashes) that breaks a rule. */
export function violationsOf(path: string, source: string): string[] {
  const place = placeOf(path);
  if (place === undefined) return [`${path} is in no package: move it into one of the workspaces of package.json`];
  const { owner, room } = place;
  const row = owner.rooms.get(room);
  if (row === undefined) return [`${path} is in a folder without a row: add "${room}" to ${owner.folder}rooms.json`];
  if (isFree(path)) return freeViolations(path, source, place, row);
  const inTest = isTest(path);
  const violations: string[] = [];
  const judge = (specifier: string): string | undefined => {
    if (specifier.startsWith("node:")) {
      if (!inTest && row.node !== true) return "this room uses no module of Node's";
      if (!inTest) needed.add(`${owner.folder}${room} node`);
      return undefined;
    }
    const file = fileOf(path, specifier, PACKAGES);
    const foreign = file === undefined || !file.startsWith(owner.folder) || placeOf(file)?.owner !== owner;
    if (foreign) {
      if (specifier.startsWith(".")) return BY_PATH;
      const name = packageOf(specifier);
      if (!isNamed(owner, name, inTest)) return `${owner.folder}package.json does not name ${name}`;
    }
    if (file === undefined) return undefined;
    if (file.startsWith(TESTS)) {
      return inTest && file.startsWith(UNIT_SUPPORT)
        ? undefined
        : `only tests may import ${UNIT_SUPPORT}, and nothing else of it`;
    }
    return inTest ? undefined : unnamedRoom(place, row, file);
  };
  for (const specifier of specifiersOf(path, source)) {
    const reason = judge(specifier);
    if (reason !== undefined) violations.push(`${path} must not import ${specifier}: ${reason}`);
  }
  return violations;
}

/**
 * Broken imports, each of which must be found: for every room those of each room that its row does not name, and one of
 * Node's.
 */
function canaries(): (readonly [path: string, source: string])[] {
  const all = PACKAGES.flatMap((owner) => [...owner.rooms.keys()].map((room): Place => ({ owner, room })));
  const broken: [string, string][] = [
    ["elsewhere/canary.ts", 'import { x } from "./y.ts";'],
    ["scripts/canary.ts", 'import x from "left-pad";'],
    ["scripts/canary.ts", 'import { x } from "../protocol/errors.ts";'],
    [`${UNIT_SUPPORT}pods/canary.ts`, 'import { x } from "../../containerd/containerd.ts";'],
    ["agent/plan/canary.test.ts", 'import { x } from "@picolet/test/support/containerd/containerd.ts";'],
  ];
  for (const { owner, room } of all) {
    const path = fileIn({ owner, room });
    const row = owner.rooms.get(room);
    const ofProduct = !isFree(owner.folder);
    for (const other of all) {
      if (!ofProduct && !isFree(other.owner.folder)) continue;
      const entry = nameOf(other, owner);
      if ((other.owner === owner && other.room === room) || row?.imports.includes(entry)) continue;
      const target = fileIn(other);
      const specifier =
        other.owner === owner
          ? relative(dirname(path), target).replace(/^(?!\.)/, "./")
          : `${other.owner.name}/${target.slice(other.owner.folder.length)}`;
      broken.push([path, `import type { X } from "${specifier}";`], [path, `const x = await import("${specifier}");`]);
    }
    broken.push([path, 'import x from "left-pad";']);
    if (!ofProduct) continue;
    if (row?.node !== true) broken.push([path, 'import { readFileSync } from "node:fs";']);
    broken.push([path, 'import { x } from "@picolet/test/support/x.ts";']);
  }
  return broken;
}

/** Rooms and files that import each other in a circle: rooms as rows have them, files as they are. */
function circles(files: ReadonlyMap<string, string>): string[] {
  const edges = new Map<string, readonly string[]>();
  for (const owner of PACKAGES) {
    for (const [room, row] of owner.rooms) {
      const targets = row.imports.map((entry) => (entry.startsWith(SCOPE) ? entry : `${owner.name}/${entry}`));
      edges.set(`${owner.name}/${room}`, targets);
    }
  }
  for (const [path, source] of files) {
    const targets = specifiersOf(path, source, "static").map((each) => fileOf(path, each, PACKAGES));
    edges.set(
      path,
      targets.filter((each) => each !== undefined),
    );
  }
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (place: string, path: readonly string[]): void => {
    if (path.includes(place)) {
      found.push(`these import each other: ${[...path.slice(path.indexOf(place)), place].join(" -> ")}`);
      return;
    }
    if (done.has(place)) return;
    for (const target of edges.get(place) ?? []) visit(target, [...path, place]);
    done.add(place);
  };
  for (const place of edges.keys()) visit(place, []);
  return found;
}

/** Rows, entries of rows, and packages, that no file needs any more. */
function idleEntries(files: readonly string[]): string[] {
  const held = new Set(
    files.flatMap((path) => {
      const place = placeOf(path);
      return place === undefined ? [] : [`${place.owner.folder}${place.room}`];
    }),
  );
  const idle: string[] = [];
  for (const { folder, rooms, dependencies, devDependencies } of PACKAGES) {
    for (const name of [...dependencies, ...devDependencies]) {
      if (!needed.has(`${folder} ${name}`) && !NOT_IMPORTED.has(name))
        idle.push(`${folder}package.json names ${name}, which nothing needs`);
    }
    for (const [room, row] of rooms) {
      const key = `${folder}${room}`;
      if (!held.has(key)) idle.push(`${folder}rooms.json has a row "${room}" without a file`);
      const entries = [...row.imports, ...(row.node === true ? ["node"] : [])];
      for (const entry of entries) {
        if (!needed.has(`${key} ${entry}`))
          idle.push(`${folder}rooms.json: "${room}" names "${entry}", which nothing needs`);
      }
    }
  }
  return idle;
}

const problems: string[] = [];
const broken = canaries();
for (const [path, source] of broken) {
  if (violationsOf(path, source).length === 0) problems.push(`the layer check does not see: ${path}: ${source}`);
}
const circle = new Map([
  ["a.ts", 'import type { B } from "./b.ts";'],
  ["b.ts", 'import { a } from "./a.ts";'],
]);
if (circles(circle).length === 0) problems.push("the layer check does not see files that import each other");
needed.clear();
const sources = new Map(sourceFilesOf(".").map((path) => [path, readFileSync(path, "utf8")]));
const files = [...sources.keys()];
if (files.length === 0) problems.push("the layer check found no source file");
for (const [path, source] of sources) problems.push(...violationsOf(path, source));
problems.push(...circles(sources), ...idleEntries(files));
for (const each of problems) console.error(each);
const rows = PACKAGES.reduce((sum, { rooms }) => sum + rooms.size, 0);
console.log(`layers: ${files.length} files, ${rows} rooms, ${broken.length} canaries, ${problems.length} problems`);
if (problems.length > 0) process.exit(1);
