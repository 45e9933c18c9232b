import type { Context } from "./context.ts";

/** Asks a user, who answers with a line. @returns true for y and yes alone */
export async function confirms({ terminal, input }: Context, question: string): Promise<boolean> {
  terminal.writeError(question);
  let answer = "";
  for await (const piece of input()) {
    answer += piece.toString();
    if (answer.includes("\n")) break;
  }
  return /^\s*y(?:es)?\s*$/i.test(answer.split("\n")[0] ?? "");
}
