/** The package `picolet:board` as one text, which tools take where they cannot be given a folder. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const FOLDER = "wit/board";
/** Holds the package's name, which has to come first. */
const WORLD = "world.wit";
const DEPENDENCIES = "deps";

/** `package x;` with what follows it → `package x {` … `}`, as one of several packages of a text. */
const nestedPackage = (text: string): string => `${text.replace(/^package ([^;]+);$/m, "package $1 {")}}\n`;

/** From the project's root. @param form `nested`: to stand beside other packages */
export function boardWitSource(form: "main" | "nested" = "main"): string {
  const read = (...path: string[]): string => readFileSync(join(FOLDER, ...path), "utf8");
  const own = readdirSync(FOLDER).filter((name) => name.endsWith(".wit") && name !== WORLD);
  const nested = readdirSync(join(FOLDER, DEPENDENCIES)).map((name) =>
    nestedPackage(read(DEPENDENCIES, name, "package.wit")),
  );
  const board = [read(WORLD), ...own.sort().map((name) => read(name))].join("\n");
  return [form === "main" ? board : nestedPackage(board), ...nested.sort()].join("\n");
}
