/** Bundles the pages: static files, which the agent and the hub serve. */
import { readFileSync } from "node:fs";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { build, transform } from "esbuild";

export type PageName = "board" | "fleet";

/** Bounds what a phone on a bad link loads. */
const MAX_PAGE_BYTES = 150 * KIBIBYTE;

export interface BuiltFile {
  readonly name: string;
  readonly content: string;
}

/** @throws when the page is larger than MAX_PAGE_BYTES */
export async function pageFiles(page: PageName): Promise<readonly BuiltFile[]> {
  const { outputFiles } = await build({
    entryPoints: [`page/${page}/${page}-page.ts`],
    bundle: true,
    minify: true,
    format: "iife",
    platform: "browser",
    target: ["chrome109", "firefox115", "safari16.4"],
    legalComments: "none",
    charset: "utf8",
    write: false,
    tsconfig: "page/tsconfig.json",
  });
  const css = await transform(readFileSync("page/files/page.css", "utf8"), { loader: "css", minify: true });
  const files = [
    { name: "index.html", content: readFileSync(`page/files/${page}.html`, "utf8") },
    { name: "page.js", content: outputFiles[0]?.text ?? "" },
    { name: "page.css", content: css.code },
  ];
  const bytes = files.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
  if (bytes > MAX_PAGE_BYTES) throw new Error(`the page ${page} has ${bytes} bytes, more than ${MAX_PAGE_BYTES}`);
  return files;
}
