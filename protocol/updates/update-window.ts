/** When a board may restart: a span of each day, in the board's time zone. Pure. */

/** Minutes since midnight; `from` after `to` spans midnight. */
export interface UpdateWindow {
  readonly fromMinute: number;
  readonly toMinute: number;
}

const DAY_MINUTES = 24 * 60;
const TEXT = /^([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)$/;

/** `02:00-05:00`. @returns undefined for another text, and for a window without a length. */
export function parseWindow(text: string): UpdateWindow | undefined {
  const [, fromHour, fromMinute, toHour, toMinute] = TEXT.exec(text) ?? [];
  if (toMinute === undefined) return undefined;
  const from = Number(fromHour) * 60 + Number(fromMinute);
  const to = Number(toHour) * 60 + Number(toMinute);
  return from === to ? undefined : { fromMinute: from, toMinute: to };
}

/** @returns 0 within the window, else the minutes until it opens. `minute` counts since midnight. */
export function minutesUntil(window: UpdateWindow, minute: number): number {
  const { fromMinute, toMinute } = window;
  const isOpen =
    fromMinute < toMinute ? minute >= fromMinute && minute < toMinute : minute >= fromMinute || minute < toMinute;
  return isOpen ? 0 : (fromMinute - minute + DAY_MINUTES) % DAY_MINUTES;
}

/** As `parseWindow` reads it. */
export const formatWindow = ({ fromMinute, toMinute }: UpdateWindow): string =>
  `${timeOf(fromMinute)}-${timeOf(toMinute)}`;

const timeOf = (minute: number): string =>
  [Math.floor(minute / 60), minute % 60].map((part) => String(part).padStart(2, "0")).join(":");
