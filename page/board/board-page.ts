/** The entry of a board's own page. */
import { make } from "../elements/dom.ts";
import { PageClient, RequestFailure } from "../elements/page-client.ts";
import { TokenForm } from "../elements/token-form.ts";
import { BoardView } from "./board-view.ts";

const NOTE =
  "To read: the file /var/lib/picolet/page/token on the board has a token. To restart and delete pods: the token of a " +
  "user who may read nodes/page and delete pods, such as kubectl create token prints. It is gone with the page.";
const UNAUTHORIZED = 401;

function main(root: HTMLElement): void {
  let view: BoardView | undefined;
  const form = new TokenForm(NOTE, () => show());
  const client = new PageClient("data/", () => form.token);
  const ask = (problem: string): void => {
    view?.[Symbol.dispose]();
    root.replaceChildren(make("h1", {}, "Board"), form.element);
    form.ask(problem);
  };
  const show = (): void => {
    view?.[Symbol.dispose]();
    view = new BoardView(client, failed, () => ask(""));
    root.replaceChildren(view.element);
    view.start();
  };
  const failed = (error: unknown): void => {
    if (!(error instanceof RequestFailure) || error.status !== UNAUTHORIZED || form.element.isConnected) return;
    ask(form.token === "" ? "" : "Neither the board nor its hub knows this token.");
  };
  show();
}

const root = document.getElementById("page");
if (root !== null) main(root);
