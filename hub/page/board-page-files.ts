/** The static files of a board's page at its kubelet endpoint: the hub's own, never those of the board. */
import { readFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { PAGE_DATA_PATH, PAGE_PATH } from "@picolet/protocol/page/board-data.ts";
import { PAGE_HEADERS, pageFileOf } from "@picolet/protocol/page/page-headers.ts";

/** @param folder of the files @returns what `KubeletProxy` calls */
export const boardPageFiles =
  (folder: string) =>
  async (path: string, response: ServerResponse): Promise<boolean> => {
    const [pathname = ""] = path.split("?", 1);
    if (!pathname.startsWith(PAGE_PATH) || pathname.startsWith(PAGE_DATA_PATH)) return false;
    const found = pageFileOf(pathname.slice(PAGE_PATH.length));
    const content = found === undefined ? "404 page not found\n" : await readFile(join(folder, found.file));
    const contentType = found?.contentType ?? "text/plain; charset=utf-8";
    response.writeHead(found === undefined ? 404 : 200, { ...PAGE_HEADERS, "content-type": contentType });
    response.end(content);
    return true;
  };
