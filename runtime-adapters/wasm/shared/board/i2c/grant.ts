/** Grant of picolet:board/i2c: `i2c:/dev/i2c-1:0x48,0x20` names addresses on a bus. */
import { parseNumbered } from "../../grants/syntax/device-syntax.ts";
import type { InterfaceGrant } from "../../grants/syntax/interface-grant.ts";

/** Marks an address of 10 bits, as in `picolet:board/i2c`. */
export const TEN_BIT_FLAG = 0x8000;

const EXAMPLE = "i2c:/dev/i2c-1:0x48";
const DECIMAL = /^\d{1,4}$/;
const HEXADECIMAL = /^0x[\da-f]{1,4}$/i;
/** The I2C specification, 3.1.12, reserves the addresses outside of this range. */
const FIRST_ADDRESS = 0x08;
const LAST_ADDRESS = 0x77;
const MAX_TEN_BIT_ADDRESS = 0x3ff;

export const i2cGrant: InterfaceGrant = {
  asksAgent: true,
  waiting: { "picolet:board/i2c": ["open"] },
  device: {
    example: EXAMPLE,
    parse: (text) => {
      const range = "an address from 0x08 to 0x77, or 0x8000 and 10 bits";
      const parsed = parseNumbered(text, { noun: "addresses", range, example: EXAMPLE, read: addressOf });
      if ("problem" in parsed) return parsed;
      return { value: { kind: "i2c", path: parsed.value.path, addresses: parsed.value.numbers } };
    },
  },
};

function addressOf(text: string): number | undefined {
  const address = HEXADECIMAL.test(text) || DECIMAL.test(text) ? Number(text) : undefined;
  if (address === undefined) return undefined;
  if ((address & TEN_BIT_FLAG) !== 0) return address - TEN_BIT_FLAG <= MAX_TEN_BIT_ADDRESS ? address : undefined;
  return address >= FIRST_ADDRESS && address <= LAST_ADDRESS ? address : undefined;
}
