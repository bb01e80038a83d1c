// Dialogs, the view that is shown, and the way between views.

const main = document.getElementById("main");
const navigation = document.getElementById("navigation");
const session = document.getElementById("session");
const notices = document.getElementById("notices");

const ROUTES = [
  [/^$/, showProjects],
  [/^doctor$/, showDoctor],
  [/^projects\/([^/]+)\/runs$/, showRuns],
  [/^projects\/([^/]+)\/runs\/([^/]+)$/, showRun],
  [/^projects\/([^/]+)\/compare$/, showComparison],
  [/^projects\/([^/]+)\/datasets$/, showDatasets],
  [/^projects\/([^/]+)\/datasets\/([^/]+)$/, showDataset],
  [/^projects\/([^/]+)\/imports\/([^/]+)$/, showImport],
  [/^projects\/([^/]+)\/sources$/, showSources],
  [/^projects\/([^/]+)\/sources\/([^/]+)$/, showSource],
  [/^projects\/([^/]+)\/webhooks$/, showWebhooks],
  [/^projects\/([^/]+)\/webhooks\/([^/]+)$/, showWebhook],
  [/^projects\/([^/]+)\/failures$/, showFailures],
];
const IN_PROJECT = ["runs", "datasets", "sources", "webhooks", "failures"];

// One visit of one address; leaving it stops what it still reads.
class View {
  constructor() {
    this.leaving = new AbortController();
    this.signal = this.leaving.signal;
  }
  show(title, { project, above, beside, actions = [] }, ...children) {
    this.signal.throwIfAborted();
    const heading = element("h1", { tabindex: "-1" }, named(title));
    document.title = `${title} – evalward`;
    showNavigation(project);
    main.replaceChildren(element("div", {}, above && element("p", { class: "crumb" }, above),
      element("div", { class: "heading" }, heading, beside, element("div", { class: "actions" }, actions.filter(Boolean)))));
    this.append(...children);
    if (!isRefresh) heading.focus({ preventScroll: true });
  }
  append(...children) {
    this.signal.throwIfAborted();
    main.append(...children.flat(Infinity).filter(Boolean));
  }
  go(address) { if (location.hash === address) visit(); else location.hash = address; }
  again(milliseconds) { sleep(milliseconds, this.signal).then(() => visit(true), () => {}); }
  async every(milliseconds, look) {
    try {
      for (;;) {
        await sleep(milliseconds, this.signal);
        if (!document.hidden) await look();
      }
    } catch (error) {
      if (this.signal.aborted) return;
      if (error.status === 401) signOut("The key is not valid any more.");
      else sleep(5000, this.signal).then(() => this.every(milliseconds, look), () => {});
    }
  }
  note(words) {
    const notice = element("div", { class: "notice" }, words);
    notices.append(notice);
    setTimeout(() => notice.remove(), 6000);
  }
  fail(error) {
    if (this.signal.aborted) return;
    main.querySelectorAll(":scope > .problem.passing").forEach(one => one.remove());
    const box = describeProblem(error);
    box.classList.add("passing");
    main.firstElementChild.after(box);
  }
}
let view = new View(), isRefresh = false;

// A list that grows by its cursor.
function pagedTable(view, caption, columns, page, next, empty, options) {
  const made = table(caption, columns, page.items, { empty, ...options });
  if (!page.next_cursor) return made;
  let cursor = page.next_cursor;
  const more = button("Show more", async () => {
    more.disabled = true;
    try {
      const found = await next(cursor);
      made.appendRows(found.items);
      cursor = found.next_cursor;
      if (!cursor) more.remove();
    } catch (error) { view.fail(error); }
    more.disabled = false;
  });
  return element("div", {}, made, more);
}

// Do a write that needs no words; trying again sends the same key.
async function act(view, write, then) {
  try { then(await write.send()); } catch (error) {
    view.fail(error);
    main.querySelector(".problem.passing")?.append(button("Try again", event => { event.target.disabled = true; act(view, write, then); }));
  }
}

function openDialog(view, title, ...children) {
  const before = document.activeElement;
  const dialog = element("dialog", { "aria-labelledby": "dialog-title" }, element("h2", { id: "dialog-title" }, title), ...children);
  dialog.addEventListener("close", () => { dialog.remove(); if (before?.isConnected) before.focus(); });
  view.signal.addEventListener("abort", () => dialog.close(), { once: true });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
const tell = (view, title, ...children) => {
  const dialog = openDialog(view, title, ...children, element("div", { class: "row" }, button("Close", () => dialog.close(), "main")));
};

function askFor(view, title, fill, makeWrite, then, word = "Do it") {
  const fields = new Map(), problem = element("div", {});
  const keep = (name, field) => { fields.set(name, field); field.name = name; return field; };
  const form = {
    input: (name, attributes) => keep(name, element("input", { autocomplete: "off", ...attributes })),
    area: (name, text) => { const area = keep(name, element("textarea", { spellcheck: "false" })); area.value = text; return area; },
    select: (name, values, chosen) => keep(name, element("select", { required: true }, values.map(value => element("option", { selected: value === chosen }, value)))),
  };
  const submit = element("button", { class: "main" }, word);
  let write = null, written = null;
  const send = async event => {
    event.preventDefault();
    const values = Object.fromEntries([...fields].map(([name, field]) =>
      [name, field.type === "checkbox" ? field.checked : field.type === "file" ? field.files[0] : field.value.trim()]));
    submit.disabled = true;
    problem.replaceChildren();
    try {
      // The same values are the same write: its key stays until there is an answer.
      const now = JSON.stringify(values, (_name, value) => (value instanceof File ? [value.name, value.size, value.lastModified] : value));
      if (now !== written) [write, written] = [makeWrite(values), now];
      const made = await write.send();
      dialog.close();
      then(made);
    } catch (error) {
      if (error instanceof Problem && error.status < 500 && error.status !== 429) written = null;
      problem.replaceChildren(error instanceof SyntaxError ? element("p", { class: "problem", role: "alert" }, error.message) : describeProblem(error));
    }
    submit.disabled = false;
  };
  const dialog = openDialog(view, title, element("form", { onsubmit: send }, fill(form), problem,
    element("div", { class: "row" }, submit, button("Cancel", () => dialog.close()))));
}
function confirmWrite(view, title, words, word, write, then) {
  askFor(view, title, () => [element("p", {}, words)], () => write, then, word);
}

function showNavigation(project) {
  const here = location.hash.slice(2).split("?")[0].split("/")[2]?.replace("compare", "runs").replace("imports", "datasets");
  const item = (address, word, isHere) => element("li", {}, element("a", { href: address, "aria-current": isHere ? "page" : null }, word));
  navigation.replaceChildren(element("ul", {}, item("#/", "Projects", location.hash.length < 3),
    project && IN_PROJECT.map(name => item(hash(project, name), name[0].toUpperCase() + name.slice(1), name === here)),
    item("#/doctor", "Doctor", location.hash.startsWith("#/doctor"))));
  session.replaceChildren(project ? element("span", { class: "mono" }, named(project)) : "", button("Sign out", () => signOut()));
  navigation.querySelector("[aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });
}

function signOut(words) {
  key = null;
  view.leaving.abort();
  askForKey(words);
}
function askForKey(words) {
  navigation.replaceChildren();
  session.replaceChildren();
  document.title = "Sign in – evalward";
  const field = element("input", { type: "password", id: "key", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": "key-hint" });
  const problem = element("div", {}, words && element("p", { class: "problem", role: "alert" }, words));
  const enter = async event => {
    event.preventDefault();
    key = field.value.trim();
    try {
      await read("/v1/whoami");
      visit();
    } catch (error) {
      key = null;
      problem.replaceChildren(error.status === 401 ? element("p", { class: "problem", role: "alert" }, "That key is not valid: it is mistyped, expired or deleted.") : describeProblem(error));
      field.select();
    }
  };
  main.replaceChildren(element("div", { class: "sign-in" }, element("div", { class: "section" }, element("h1", {}, "Sign in"),
    element("p", { class: "muted" }, "Evaluations, their reports and the sources they come from."),
    element("form", { onsubmit: enter }, element("label", { for: "key" }, "API key", field),
      element("p", { class: "hint", id: "key-hint" }, "It begins with ew_ and stays in this tab's memory: a reload asks again."), problem, element("button", { class: "main" }, "Sign in")))));
  field.focus();
}

async function visit(refreshed = false) {
  view.leaving.abort();
  if (!key) return askForKey();
  view = new View();
  isRefresh = refreshed === true;
  const here = view, [path, query] = location.hash.slice(2).split("?");
  main.setAttribute("aria-busy", "true");
  try {
    const [pattern, show] = ROUTES.find(([route]) => route.test(path)) || [];
    if (!show) here.show("Nothing is here", {}, element("p", {}, "There is no such page. ", link("#/", "Projects")));
    else await show(here, ...path.match(pattern).slice(1).map(decodeURIComponent), new URLSearchParams(query));
    if (!isRefresh) scrollTo(0, 0);
  } catch (error) {
    if (here.signal.aborted) return;
    if (error.status === 401) return signOut("The key is not valid any more.");
    const project = path.match(/^projects\/([^/]+)/)?.[1];
    here.show(error.status === 404 ? "Not found" : "That did not work", { project: project && decodeURIComponent(project) }, describeProblem(error, () => visit()));
  } finally {
    if (here === view) main.removeAttribute("aria-busy");
  }
}
// The address after # belongs to the views.
document.querySelector(".skip").addEventListener("click", event => { event.preventDefault(); main.focus(); });
addEventListener("hashchange", () => visit());
visit();
