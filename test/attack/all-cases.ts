/** Lists the files of cases in their folder. */
import { globSync } from "node:fs";
import { resolve } from "node:path";
import type { AttackFile } from "./attack-case.ts";

const FILES = "test/attack/cases/*.ts";

/** @returns in the order of their names; `name` is the file's, without its ending */
export async function allCases(): Promise<readonly (AttackFile & { readonly name: string })[]> {
  const paths = globSync(FILES).sort();
  return await Promise.all(
    paths.map(async (path) => {
      const { cases, hubFlags = [] } = (await import(resolve(path))) as AttackFile;
      return { name: path.slice(path.lastIndexOf("/") + 1, -".ts".length), cases, hubFlags };
    }),
  );
}
