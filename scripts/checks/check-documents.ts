/**
 * Checks the documents against the tree, without network:
 *
 * - every workspace has a README.md of one screen;
 * - `docs/rooms.md` has the rooms of each `rooms.json` (`--write` writes it);
 * - every link between documents resolves, and so does its anchor;
 * - every path and every CamelCase symbol in backticks exists, in documents and in comments;
 * - every message that heads a section of `docs/troubleshooting.md` is in the source.
 *
 * A path resolves from the root, from the package of the file that names it, or from that file's folder.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { basename, dirname, join, normalize } from "node:path";
import { parseSync } from "oxc-parser";

const ROOMS_DOCUMENT = "docs/rooms.md";
/** A screen of a package's README. */
const MAX_README_LINES = 60;
/** Recorded or generated sources: they name what others have. */
const IGNORED = /^(test\/golden|test\/fuzz|wit\/generated|wit\/board\/deps)\//;
/** Made by a build or an installation, or a folder of a board. */
const NOT_IN_TREE = /^(dist|node_modules|lib|bin|@)\b/;
const MESSAGES = "docs/troubleshooting.md";
/** The change log names what once was. */
const HISTORY = "CHANGELOG.md";
const EXTENSIONS = "ts|mjs|cjs|js|json|md|yaml|wit|sh|c|sha256";
const PATH_NAME = new RegExp(`^[\\w.-]+(?:/[\\w.-]+)*\\.(?:${EXTENSIONS})$`);
const FOLDER_NAME = /^[\w.-]+(?:\/[\w.-]+)*\/$/;
/**
 * Names of others that the source does not have: of Kubernetes and its client libraries, systemd, OCI and
 * OpenTelemetry.
 */
const OTHERS: ReadonlySet<string> = new Set([
  ...["KubeletEnsureSecretPulledImages", "MaxContainerBackOff", "UseStatusResources", "ToleratesTaint"],
  ...["VisitPodSecretNames", "HasAPIObjectReference", "ControllerRefManager", "HumanDuration", "ValidatePodUpdate"],
  ...["PodConditionByKubelet", "ServingStatus", "ExportMetricsServiceRequest", "ExportLogsServiceRequest"],
  ...["TimeoutStopSec", "WorkingDir"],
]);
const SYMBOL = /^([A-Z][a-z0-9]+[A-Z]\w*)(?:\.\w+)?(?:\(\))?$/;

export interface Tree {
  /** Paths of all files, relative to the root. */
  readonly files: ReadonlySet<string>;
  /** Folders of the files, with a trailing slash. */
  readonly folders: ReadonlySet<string>;
  readonly fileNames: ReadonlySet<string>;
  /** Folders of the workspaces, with a trailing slash. */
  readonly packages: readonly string[];
  /** Every identifier and every word of a string of the source, comments left out. */
  readonly symbols: ReadonlySet<string>;
  /** Anchors of each document. */
  readonly anchors: ReadonlyMap<string, ReadonlySet<string>>;
}

/** @param files paths relative to the root */
export function treeOf(
  files: readonly string[],
  packages: readonly string[],
  symbols: ReadonlySet<string>,
  anchors: ReadonlyMap<string, ReadonlySet<string>>,
): Tree {
  const folders = new Set<string>();
  for (const file of files) {
    for (let folder = dirname(file); folder !== "."; folder = dirname(folder)) folders.add(`${folder}/`);
  }
  const fileNames = new Set(files.map((file) => basename(file)));
  return { files: new Set(files), folders, fileNames, packages, symbols, anchors };
}

/** The text without its fenced code, line numbers kept. */
const withoutFences = (text: string): string =>
  text.replaceAll(/^( *)```[\s\S]*?^ *```/gm, (fence) => fence.replaceAll(/[^\n]/g, ""));

/** The anchor that GitHub gives a heading. */
const anchorOf = (heading: string): string =>
  heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");

export function anchorsOf(document: string): ReadonlySet<string> {
  const anchors = new Set<string>();
  for (const [, heading = ""] of withoutFences(document).matchAll(/^#{1,6} (.+)$/gm)) {
    const plain = anchorOf(heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1"));
    let anchor = plain;
    for (let count = 1; anchors.has(anchor); count += 1) anchor = `${plain}-${count}`;
    anchors.add(anchor);
  }
  return anchors;
}

/** Where a path may begin: the root, the package of `path`, the folder of `path`. */
function basesOf(path: string, tree: Tree): string[] {
  const owner = tree.packages.filter((each) => path.startsWith(each)).sort((a, b) => b.length - a.length)[0];
  return ["", owner ?? "", `${dirname(path)}/`];
}

function hasPath(name: string, path: string, tree: Tree): boolean {
  if (NOT_IN_TREE.test(name)) return true;
  if (!name.includes("/")) return tree.fileNames.has(name);
  const found = name.endsWith("/") ? tree.folders : tree.files;
  return basesOf(path, tree).some((base) => found.has(normalize(`${base}${name}`)));
}

function* quotesOf(text: string): Generator<{ readonly line: number; readonly quote: string }> {
  for (const [index, line] of text.split("\n").entries()) {
    for (const [, quote = ""] of line.matchAll(/`([^`]+)`/g)) yield { line: index + 1, quote };
  }
}

function linkFault(target: string, path: string, tree: Tree): string | undefined {
  if (/^[a-z]+:/.test(target)) return undefined;
  const [file = "", anchor] = target.split("#");
  const linked = file === "" ? path : normalize(join(dirname(path), file));
  const isThere = tree.files.has(linked) || tree.folders.has(linked.endsWith("/") ? linked : `${linked}/`);
  if (!isThere) return `the link to ${target} names no file: correct the path`;
  if (anchor === undefined || !linked.endsWith(".md") || tree.anchors.get(linked)?.has(anchor) === true)
    return undefined;
  return `the link to ${target} names no heading of ${linked}: correct the anchor`;
}

/** One sentence for each link, path and symbol of a document that does not exist, each with the place. */
export function documentFaults(path: string, document: string, tree: Tree): string[] {
  const text = withoutFences(document);
  const faults: string[] = [];
  for (const { line, quote } of quotesOf(text)) {
    if ((PATH_NAME.test(quote) && /[/]|\.(?:ts|md)$/.test(quote)) || (FOLDER_NAME.test(quote) && isOurs(quote, tree))) {
      if (!hasPath(quote, path, tree)) faults.push(`${path}:${line}: there is no ${quote}: correct the path`);
      continue;
    }
    const symbol = SYMBOL.exec(quote)?.[1];
    if (symbol !== undefined && !OTHERS.has(symbol) && !tree.symbols.has(symbol)) {
      faults.push(`${path}:${line}: the source has no ${symbol}: correct the name`);
    }
  }
  for (const [index, line] of text.split("\n").entries()) {
    for (const [, target = ""] of line.replaceAll(/`[^`]*`/g, "").matchAll(/\]\(([^)\s]+)\)/g)) {
      const fault = linkFault(target, path, tree);
      if (fault !== undefined) faults.push(`${path}:${index + 1}: ${fault}`);
    }
  }
  return faults;
}

/** A folder in backticks is one of ours if its first part is; others are folders of a board. */
const isOurs = (name: string, tree: Tree): boolean => tree.folders.has(`${name.split("/")[0]}/`);

/** One sentence for each path and each symbol in backticks of a comment that does not exist. */
export function commentFaults(path: string, comments: readonly Comment[], tree: Tree): string[] {
  return comments.flatMap(({ value, line }) =>
    [...quotesOf(value)].flatMap(({ line: below, quote }) => {
      const isPath = /^[\w./-]+\.ts$/.test(quote) || (/^[\w.-]+\/[\w./-]+\/$/.test(quote) && isOurs(quote, tree));
      const symbol = SYMBOL.exec(quote)?.[1];
      if (symbol !== undefined && !OTHERS.has(symbol) && !tree.symbols.has(symbol)) {
        return [`${path}:${line + below - 1}: the source has no ${symbol}: correct the name`];
      }
      if (!isPath || hasPath(quote, path, tree)) return [];
      return [`${path}:${line + below - 1}: there is no ${quote}: correct the path`];
    }),
  );
}

export interface Comment {
  readonly value: string;
  /** The line on which it begins. */
  readonly line: number;
}

/** One sentence for each message that the source does not have. @param sources texts of programs */
export function messageFaults(path: string, document: string, sources: readonly string[]): string[] {
  return document.split("\n").flatMap((line, index) => {
    const message = /^### `(.+)`$/.exec(line)?.[1];
    const lacks = message?.split("…").some((part) => !sources.some((text) => text.includes(part.trim())));
    return lacks === true ? [`${path}:${index + 1}: the source has no message "${message}": take the present one`] : [];
  });
}

interface Source {
  readonly text: string;
  readonly words: readonly string[];
  readonly comments: readonly Comment[];
}

function readSource(path: string): Source {
  const source = readFileSync(path, "utf8");
  const { comments } = parseSync(path, source) as unknown as {
    readonly comments: readonly { readonly value: string; readonly start: number; readonly end: number }[];
  };
  let code = "";
  let from = 0;
  for (const { start, end } of comments) {
    code += source.slice(from, start);
    from = end;
  }
  code += source.slice(from);
  const quoting = comments.filter(({ value }) => value.includes("`"));
  return {
    text: code,
    words: code.match(/\b[A-Z]\w+/g) ?? [],
    comments: quoting.map(({ value, start }) => ({ value, line: source.slice(0, start).split("\n").length })),
  };
}

type Rooms = Readonly<Record<string, { readonly owns: string }>>;

interface RoomsOfPackage {
  readonly name: string;
  /** With a trailing slash. */
  readonly folder: string;
  readonly rooms: Rooms;
}

/** `docs/rooms.md`: what each room of each package owns. */
export function roomsDocument(packages: readonly RoomsOfPackage[]): string {
  const sections = packages.map(({ name, folder, rooms }) => {
    const rows = Object.entries(rooms).map(([room, { owns }]) => {
      const path = room === "./" ? folder : `${folder}${room}`;
      return `| \`${path}\` | ${owns.replaceAll("|", "\\|")} |`;
    });
    return [`## ${name}`, "", "| room | what it owns |", "| --- | --- |", ...rows].join("\n");
  });
  return `${ROOMS_HEAD}\n${sections.join("\n\n")}\n`;
}

const ROOMS_HEAD = `# Rooms

Made by \`npm run documents -- --write\` from the \`rooms.json\` of each package, which lists what each room may import
too. [ARCHITECTURE.md](../ARCHITECTURE.md#map) has the packages.
`;

/** @param readme undefined: there is none */
export function readmeFault(folder: string, readme: string | undefined): string | undefined {
  if (readme === undefined) return `${folder} has no README.md: write what it is, its tasks and where to begin`;
  const lines = readme.split("\n").length - 1;
  if (lines <= MAX_README_LINES) return undefined;
  return `${folder}README.md has ${lines} lines, and may have ${MAX_README_LINES}: move parts into READMEs of rooms`;
}

function roomsFault(folders: readonly string[], mayWrite: boolean): string | undefined {
  const withRooms = folders.filter((folder) => existsSync(`${folder}rooms.json`));
  const packages = withRooms.map((folder): RoomsOfPackage => {
    const { name } = JSON.parse(readFileSync(`${folder}package.json`, "utf8")) as { readonly name: string };
    return { name, folder, rooms: JSON.parse(readFileSync(`${folder}rooms.json`, "utf8")) as Rooms };
  });
  const wanted = roomsDocument(packages);
  if (textOf(ROOMS_DOCUMENT) === wanted) return undefined;
  if (!mayWrite) return `${ROOMS_DOCUMENT} differs from the tables of rooms: run npm run documents -- --write`;
  writeFileSync(ROOMS_DOCUMENT, wanted);
  return undefined;
}

const textOf = (path: string): string | undefined => (existsSync(path) ? readFileSync(path, "utf8") : undefined);

function checkAll(mayWrite: boolean): void {
  const { workspaces } = JSON.parse(readFileSync("package.json", "utf8")) as { readonly workspaces: readonly string[] };
  const packages = workspaces.map((each) => `${each}/`);
  const faults = packages.flatMap((folder) => readmeFault(folder, textOf(`${folder}README.md`)) ?? []);
  const rooms = roomsFault(packages, mayWrite);
  if (rooms !== undefined) faults.push(rooms);
  const listed = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { encoding: "utf8" }).split("\n");
  const files = listed.filter((path) => path !== "" && existsSync(path));
  const documents = files.filter((path) => path.endsWith(".md"));
  const texts = new Map(documents.map((path) => [path, readFileSync(path, "utf8")]));
  const sources = new Map(
    files.filter((path) => /\.m?ts$/.test(path) && !IGNORED.test(path)).map((path) => [path, readSource(path)]),
  );
  const symbols = new Set([...sources.values()].flatMap(({ words }) => words));
  const tree = treeOf(files, packages, symbols, new Map([...texts].map(([path, text]) => [path, anchorsOf(text)])));
  for (const [path, text] of texts) if (path !== HISTORY) faults.push(...documentFaults(path, text, tree));
  for (const [path, { comments }] of sources) faults.push(...commentFaults(path, comments, tree));
  const programs = [...sources].filter(([path]) => !/\.test\.ts$|^test\//.test(path)).map(([, { text }]) => text);
  const scripts = files.filter((path) => path.endsWith(".sh")).map((path) => readFileSync(path, "utf8"));
  faults.push(...messageFaults(MESSAGES, texts.get(MESSAGES) ?? "", [...programs, ...scripts]));
  for (const each of faults) console.error(each);
  console.log(`documents: ${documents.length} documents, ${sources.size} sources, ${faults.length} faults`);
  if (faults.length > 0) process.exit(1);
}

if (import.meta.main) checkAll(process.argv.includes("--write"));
