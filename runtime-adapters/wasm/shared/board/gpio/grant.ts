/** Grant of picolet:board/gpio: `gpio:/dev/gpiochip0:4,17` names lines of a chip. */
import { parseNumbered } from "../../grants/syntax/device-syntax.ts";
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";

const EXAMPLE = "gpio:/dev/gpiochip0:17";
const DECIMAL = /^\d{1,4}$/;
/** The last line of a chip. The kernel's own limit is 512 lines unless it was built with more. */
const MAX_LINE = 1023;

export const gpioGrant: InterfaceGrant = {
  asksAgent: true,
  waiting: { "picolet:board/gpio": ["lines", "open-input", "open-output"] },
  device: {
    example: EXAMPLE,
    parse: (text) => {
      const range = `a number up to ${MAX_LINE}`;
      const parsed = parseNumbered(text, { noun: "lines", range, example: EXAMPLE, read: lineOf });
      if ("problem" in parsed) return parsed;
      return { value: { kind: "gpio", path: parsed.value.path, lines: parsed.value.numbers } };
    },
  },
};

function lineOf(text: string): number | undefined {
  const line = DECIMAL.test(text) ? Number(text) : undefined;
  return line !== undefined && line <= MAX_LINE ? line : undefined;
}
