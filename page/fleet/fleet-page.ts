/** The entry of the fleet's page: the fleet, or one of its boards, by the fragment of the address. */
import { BoardView } from "../board/board-view.ts";
import { make } from "../elements/dom.ts";
import { PageClient, RequestFailure } from "../elements/page-client.ts";
import { TokenForm } from "../elements/token-form.ts";
import { FleetView } from "./fleet-view.ts";

const NOTE =
  "A bearer token of a user who may list nodes, such as kubectl create token prints. It is kept in this page's memory " +
  "alone: after a reload you are asked again.";
const UNAUTHORIZED = 401;
const FORBIDDEN = 403;
/** A Node's name; anything else would lead to another path. */
const BOARD = /^#board\/([a-z0-9][a-z0-9.-]{0,252})$/;

const linkOf = (name: string): string => `board/${name}`;

interface View extends Disposable {
  readonly element: HTMLElement;
  start(): void;
}

function main(root: HTMLElement): void {
  let view: View | undefined;
  const form = new TokenForm(NOTE, () => show());
  const client = new PageClient("data/", () => form.token);

  const ask = (problem: string): void => {
    view?.[Symbol.dispose]();
    view = undefined;
    root.replaceChildren(make("h1", {}, "Fleet"), form.element);
    form.ask(problem);
  };
  const failed = (error: unknown): void => {
    if (!(error instanceof RequestFailure) || view === undefined) return;
    if (error.status === UNAUTHORIZED) ask("The hub does not know this token.");
    else if (error.status === FORBIDDEN && view instanceof FleetView)
      ask(`This user may not list nodes: ${error.message}`);
  };
  const show = (): void => {
    if (form.token === "") {
      ask("");
      return;
    }
    view?.[Symbol.dispose]();
    const [, name] = BOARD.exec(location.hash) ?? [];
    view =
      name === undefined
        ? new FleetView(client, linkOf, failed)
        : new BoardView(client.below(`boards/${name}/`), failed);
    root.replaceChildren(...(name === undefined ? [] : [backLink()]), view.element);
    view.start();
    root.focus({ preventScroll: true });
    scrollTo(0, 0);
  };
  addEventListener("hashchange", () => {
    if (BOARD.test(location.hash) || location.hash === "" || location.hash === "#fleet") show();
  });
  show();
}

const backLink = (): HTMLElement => make("p", {}, make("a", { href: "#fleet" }, "← All boards"));

const root = document.getElementById("page");
if (root !== null) main(root);
