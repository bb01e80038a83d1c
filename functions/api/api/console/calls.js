// Calls of the API. The key lives in this variable and nowhere else: a reload forgets it.

let key = null;
const RETRIED = new Set([429, 500, 502, 503, 504]);
const ATTEMPTS = 5;
const PATIENCE_SECONDS = 60;

class Problem extends Error {
  constructor(status, body, requestId) {
    super(body.detail || `The service answered ${status}.`);
    Object.assign(this, { status, code: body.code, title: body.title, errors: body.errors || [], requestId });
  }
}

const sleep = (milliseconds, signal) => new Promise((resolve, reject) => {
  const stop = () => { clearTimeout(timer); reject(signal.reason); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); resolve(); }, milliseconds);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
});

async function send(method, path, { body, raw, idempotencyKey, accept, signal } = {}) {
  const headers = { authorization: `Bearer ${key}`, accept: accept || "application/json" };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (raw) headers["content-type"] = "application/octet-stream";
  if (idempotencyKey) headers["idempotency-key"] = idempotencyKey;
  const answer = await fetch(path, { method, headers, signal, body: raw || (body && JSON.stringify(body)),
    credentials: "omit", cache: "no-store", redirect: "error" });
  if (answer.ok) {
    if (accept) return answer.text();
    return answer.status === 204 ? null : answer.json();
  }
  let problem = {};
  try { problem = await answer.json(); } catch { /* the gateway's own answers are no problem documents */ }
  const refused = new Problem(answer.status, problem, answer.headers.get("x-request-id"));
  refused.retryAfter = Number(answer.headers.get("retry-after")) || 0;
  throw refused;
}

const read = (path, signal, accept) => send("GET", path, { signal, accept });
const readPage = (path, query, signal) => {
  const wanted = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return read(`${path}?${new URLSearchParams(wanted)}`, signal);
};

// A write and its key: the same write tried again, by itself or by its user, sends the same key and takes effect once.
class Write {
  constructor(method, path, { body, raw } = {}) {
    Object.assign(this, { method, path, body, raw, idempotencyKey: `console-${crypto.randomUUID()}` });
  }
  async send() {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await send(this.method, this.path, this);
      } catch (error) {
        const isTransient = error instanceof TypeError || RETRIED.has(error.status) || error.code === "idempotency_in_progress";
        // Who sits before the dialog decides about a longer wait.
        if (!isTransient || attempt === ATTEMPTS || error.retryAfter > PATIENCE_SECONDS) throw error;
        await sleep(Math.max((error.retryAfter || 0) * 1000, 250 * 2 ** attempt));
      }
    }
  }
}

// What went wrong, as sentences: the rows or places that are wrong, and the id that the logs have.
function describeProblem(error, retry) {
  const isKnown = error instanceof Problem;
  const box = element("div", { class: "problem", role: "alert" },
    element("p", {}, element("strong", {}, isKnown ? `${error.title || `Error ${error.status}`}.` : "No answer."), " ",
      isKnown ? error.message : "The service could not be reached. Check the connection and try again."));
  if (isKnown && error.errors.length) box.append(describePlaces(error.errors));
  if (isKnown && error.requestId) box.append(element("p", { class: "small" }, "Request ", element("code", {}, error.requestId)));
  if (retry) box.append(button("Try again", retry));
  return box;
}
function describePlaces(errors) {
  const place = one => [one.row !== undefined && describeRow(one.row), one.field, one.pointer].filter(Boolean).join(", ");
  return element("ul", {}, errors.map(one => element("li", {}, place(one) && element("code", {}, place(one)), " ", one.message)));
}
// A fault of the whole file has no row.
const describeRow = row => (row === null ? "the file" : `row ${count(row)}`);
