/**
 * The table of the interfaces of `wit/board`, as pods grant them: `wasm.picolet.io/interfaces: config, keyvalue`. The
 * host parts are in `shared/board/board.ts` and `runner/device-imports.ts`; README.md has the steps for a new one. Pure.
 */
import type { BoardInterface } from "@picolet/runtime-contract/board-services.ts";
import { parseInterfaceName } from "../binary/component-shape.ts";
import { configGrant } from "../board/config/grant.ts";
import { gpioGrant } from "../board/gpio/grant.ts";
import { i2cGrant } from "../board/i2c/grant.ts";
import { keyvalueGrant } from "../board/keyvalue/grant.ts";
import { loggingGrant } from "../board/logging/grant.ts";
import { nnGrant } from "../board/nn/grant.ts";
import { nodeInfoGrant } from "../board/node-info/grant.ts";
import { serialGrant } from "../board/serial/grant.ts";
import { telemetryGrant } from "../board/telemetry/grant.ts";
import { type InterfaceGrant, listOf, type Parsed } from "./syntax/interface-grant.ts";

/** Grants by the name of their interface. */
export type InterfaceGrants = Readonly<Record<string, InterfaceGrant>>;

/** The order is that of error messages. */
export const INTERFACE_GRANTS = {
  config: configGrant,
  keyvalue: keyvalueGrant,
  logging: loggingGrant,
  telemetry: telemetryGrant,
  "node-info": nodeInfoGrant,
  serial: serialGrant,
  gpio: gpioGrant,
  i2c: i2cGrant,
  nn: nnGrant,
} satisfies Readonly<Record<BoardInterface, InterfaceGrant>> as Readonly<Record<BoardInterface, InterfaceGrant>>;

const BOARD_VERSION = /^0\.1\.\d+$/;
const BOARD_PREFIX = "picolet:board/";

export function parseInterfaces(text: string, grants: InterfaceGrants = INTERFACE_GRANTS): Parsed<BoardInterface[]> {
  const names = [...new Set(listOf(text))];
  const isKnown = (name: string): name is BoardInterface => Object.hasOwn(grants, name);
  const problems = names
    .filter((each) => !isKnown(each))
    .map((each) => `there is no interface ${JSON.stringify(each)}; there are ${Object.keys(grants).join(", ")}`);
  return { value: names.filter(isKnown), problems };
}

/**
 * The board's interface that answers an import: its own, or a WASI proposal.
 * @returns undefined for an import that is not the board's
 */
export function boardInterfaceOf(name: string, grants: InterfaceGrants = INTERFACE_GRANTS): BoardInterface | undefined {
  const { path, version } = parseInterfaceName(name) ?? { path: name, version: "" };
  const found = Object.entries(grants).find(([each, { proposals = {} }]) => {
    if (Object.hasOwn(proposals, path)) return proposals[path]?.test(version);
    return path === BOARD_PREFIX + each && BOARD_VERSION.test(version);
  });
  return found?.[0] as BoardInterface | undefined;
}

/** @returns whether one of the imports is an interface of the board whose grant passes `test` */
export const importsBoard = (
  imports: readonly string[],
  test: (grant: InterfaceGrant) => boolean,
  grants: InterfaceGrants = INTERFACE_GRANTS,
): boolean =>
  imports.some((name) => {
    const grant = grants[boardInterfaceOf(name, grants) ?? ""];
    return grant !== undefined && test(grant);
  });
