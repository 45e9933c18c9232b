import type { Line } from "./linear-regression.ts";
import type { Sample } from "./soak.ts";

const WIDTH = 900;
const HEIGHT = 420;
const MARGIN = 60;
/** Lines across, named at the left. */
const GRID_LINES = 5;

/** Anonymous memory over time as an SVG of its own. */
export function plotSamples(samples: readonly Sample[], line: Line | undefined, title: string): string {
  const lastMinute = Math.max(1e-6, samples.at(-1)?.minutes ?? 0);
  const highest = Math.ceil(Math.max(1, ...samples.map(({ anonMiB }) => anonMiB)) * 1.1);
  const x = (minutes: number): number => MARGIN + (minutes / lastMinute) * (WIDTH - 2 * MARGIN);
  const y = (mib: number): number => HEIGHT - MARGIN - (mib / highest) * (HEIGHT - 2 * MARGIN);
  const points = samples.map(({ minutes, anonMiB }) => `${x(minutes).toFixed(1)},${y(anonMiB).toFixed(1)}`).join(" ");
  const grid = Array.from({ length: GRID_LINES + 1 }, (_, n) => (highest / GRID_LINES) * n).map(
    (mib) =>
      `<line x1="${MARGIN}" x2="${WIDTH - MARGIN}" y1="${y(mib)}" y2="${y(mib)}" stroke="#ddd"/>` +
      `<text x="${MARGIN - 8}" y="${y(mib) + 4}" text-anchor="end">${mib.toFixed(1)}</text>`,
  );
  const at = (minutes: number): number => (line === undefined ? 0 : line.intercept + (line.slope * minutes) / 60);
  const trend =
    line === undefined
      ? ""
      : `<line x1="${x(0)}" y1="${y(at(0))}" x2="${x(lastMinute)}" y2="${y(at(lastMinute))}" stroke="#c33" stroke-dasharray="6 4"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="#fff"/>
<text x="${MARGIN}" y="30" font-size="15">${title.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</text>
${grid.join("\n")}
<text x="${WIDTH / 2}" y="${HEIGHT - 18}" text-anchor="middle">${lastMinute.toFixed(1)} minutes, ${samples.at(-1)?.pods ?? 0} pods; MiB of anonymous memory</text>
<polyline points="${points}" fill="none" stroke="#259" stroke-width="1.5"/>
${trend}
</svg>
`;
}
