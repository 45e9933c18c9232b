/** The `picolet.yaml` that an image brings: every field, commented out. */
import { fileURLToPath } from "node:url";

export const BOARD_FILE_TEMPLATE = fileURLToPath(new URL("picolet.yaml", import.meta.url));

/** The same with all fields in force. Before text for people `#` has one blank after it, before fields none or two. */
export const exampleOf = (template: string): string => template.replaceAll(/^#(?! \S)/gm, "");
