/** The entry of a board's own page. */
import { make } from "../elements/dom.ts";
import { PageClient, RequestFailure } from "../elements/page-client.ts";
import { TokenForm } from "../elements/token-form.ts";
import { BoardView } from "./board-view.ts";

const NOTE = "The file page/token in the agent's state folder has it: /var/lib/picolet/page/token on the board.";
const UNAUTHORIZED = 401;

function main(root: HTMLElement): void {
  let view: BoardView | undefined;
  const form = new TokenForm(NOTE, () => show());
  const client = new PageClient("data/", () => form.token);
  const show = (): void => {
    view?.[Symbol.dispose]();
    view = new BoardView(client, failed);
    root.replaceChildren(view.element);
    view.start();
  };
  const failed = (error: unknown): void => {
    if (!(error instanceof RequestFailure) || error.status !== UNAUTHORIZED || form.element.isConnected) return;
    const wasWrong = form.token !== "";
    view?.[Symbol.dispose]();
    root.replaceChildren(make("h1", {}, "Board"), form.element);
    form.ask(wasWrong ? "This token is not the board's." : "");
  };
  show();
}

const root = document.getElementById("page");
if (root !== null) main(root);
