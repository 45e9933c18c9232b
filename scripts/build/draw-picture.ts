/**
 * Draws docs/picture.svg from docs/picture.txt, whose head says its lines. With `--check` it writes nothing and fails
 * when the drawing is not what the text says.
 */
import { readFileSync, writeFileSync } from "node:fs";

const TEXT = "docs/picture.txt";
const DRAWING = "docs/picture.svg";
const COLORS = { plain: ["#f6f8fa", "#57606a"], ours: ["#ddf4ff", "#0969da"] } as const;
const LINE_PIXELS = 15;

interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
  readonly kind: keyof typeof COLORS;
  readonly lines: readonly string[];
}

const escaped = (text: string): string => text.replace(/[&<>]/g, (each) => `&#${each.charCodeAt(0)};`);

function boxMarkup({ x, y, width, height, kind, lines }: Box): string {
  const [fill, stroke] = COLORS[kind];
  const middle = x + width / 2;
  const first = y + height / 2 - ((lines.length - 1) * LINE_PIXELS) / 2 + 4;
  const texts = lines.map((line, index) => {
    const style = index === 0 ? 'font-weight="600" font-size="13"' : 'font-size="11" fill="#57606a"';
    return `<text x="${middle}" y="${first + index * LINE_PIXELS}" text-anchor="middle" ${style}>${escaped(line)}</text>`;
  });
  const shape = `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="6" fill="${fill}" stroke="${stroke}"/>`;
  return `${shape}${texts.join("")}`;
}

/** Where the straight line between the middles of two boxes leaves the first. */
function edgeOf(from: Box, to: Box): readonly [number, number] {
  const [cx, cy] = [from.x + from.width / 2, from.y + from.height / 2];
  const [dx, dy] = [to.x + to.width / 2 - cx, to.y + to.height / 2 - cy];
  const scale = Math.min(from.width / 2 / Math.abs(dx || 1e-9), from.height / 2 / Math.abs(dy || 1e-9));
  return [Math.round(cx + dx * scale), Math.round(cy + dy * scale)];
}

function lineMarkup(from: Box, to: Box, isWire: boolean, label: string): string {
  const [x1, y1] = edgeOf(from, to);
  const [x2, y2] = edgeOf(to, from);
  const style = isWire ? 'stroke="#0969da" stroke-width="3"' : 'stroke="#57606a" marker-end="url(#head)"';
  const line = `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" ${style}/>`;
  if (label === "") return line;
  const words = label.split(", ");
  const texts = words.map(
    (word, index) =>
      `<text x="${(x1 + x2) / 2}" y="${(y1 + y2) / 2 - 8 + index * 26}" text-anchor="middle" font-size="11">${escaped(word)}</text>`,
  );
  return `${line}${texts.join("")}`;
}

/** @throws with the number of the line that it cannot read */
export function drawPicture(text: string): string {
  const boxes = new Map<string, Box>();
  const groups: string[] = [];
  const shapes: string[] = [];
  const lines: string[] = [];
  let size = [0, 0];
  for (const [index, line] of text.split("\n").entries()) {
    const [word = "", ...rest] = line.trim().split(/\s+/);
    if (word === "" || word.startsWith("#")) continue;
    const fail = (reason: string): never => {
      throw new Error(`${TEXT}:${index + 1}: ${reason}`);
    };
    const numbers = (from: number, count: number): number[] => {
      const values = rest.slice(from, from + count).map(Number);
      return values.length === count && values.every(Number.isFinite) ? values : fail(`${count} numbers are missing`);
    };
    const boxNamed = (id = ""): Box => boxes.get(id) ?? fail(`no box before this line has the name "${id}"`);
    switch (word) {
      case "size":
        size = numbers(0, 2);
        break;
      case "group": {
        const [x = 0, y = 0, width = 0, height = 0] = numbers(0, 4);
        const title = `<text x="${x + 14}" y="${y + 24}" font-size="12" fill="#57606a">${escaped(rest.slice(4).join(" "))}</text>`;
        groups.push(
          `<rect x="${x}" y="${y}" width="${width}" height="${height}" rx="10" fill="none" stroke="#d0d7de" stroke-dasharray="4 3"/>${title}`,
        );
        break;
      }
      case "box": {
        const [x = 0, y = 0, width = 0, height = 0] = numbers(1, 4);
        const kind = rest[5] ?? "";
        if (kind !== "plain" && kind !== "ours") fail(`the kind is "${kind}": write plain or ours`);
        const title = rest.slice(6).join(" ").split(" | ");
        const box: Box = { x, y, width, height, kind: kind as Box["kind"], lines: title };
        boxes.set(rest[0] ?? "", box);
        shapes.push(boxMarkup(box));
        break;
      }
      case "arrow":
      case "wire":
        lines.push(lineMarkup(boxNamed(rest[0]), boxNamed(rest[1]), word === "wire", rest.slice(2).join(" ")));
        break;
      default:
        fail(`"${word}" is unknown: write size, group, box, arrow or wire`);
    }
  }
  const [width = 0, height = 0] = size;
  const head = `<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" font-family="system-ui, sans-serif" role="img">
<title>How picolet's parts are joined</title>
<defs>${head}</defs>
<rect width="${width}" height="${height}" fill="#ffffff"/>
${[...groups, ...lines, ...shapes].join("\n")}
</svg>
`;
}

if (import.meta.main) {
  const drawing = drawPicture(readFileSync(TEXT, "utf8"));
  if (!process.argv.includes("--check")) writeFileSync(DRAWING, drawing);
  else if (readFileSync(DRAWING, "utf8") !== drawing) {
    console.error(`${DRAWING} is not what ${TEXT} says: run node scripts/build/draw-picture.ts`);
    process.exit(1);
  }
}
