// Webhooks and deliveries, failures, and the doctor.

const EVENTS = ["run.finished", "run.gate_failed", "dataset.published", "dataset.import_failed", "source.window_missed"];

async function showWebhooks(view, project) {
  const list = cursor => readPage(`${api(project)}/webhooks`, { cursor }, view.signal);
  const page = await list();
  const create = () => askFor(view, "New webhook", form => [
    element("label", {}, "Id", form.input("id", { required: true, pattern: "[a-z0-9][a-z0-9\\-]{0,62}", maxlength: 63 })),
    element("label", {}, "Address", form.input("url", { type: "url", required: true, placeholder: "https://" })),
    element("fieldset", {}, element("legend", {}, "Tell it"), EVENTS.map(name => element("label", { class: "check" }, form.input(name, { type: "checkbox" }), name))),
  ], values => new Write("POST", `${api(project)}/webhooks`, { body: { id: values.id, url: values.url, events: EVENTS.filter(name => values[name]) } }),
  made => { view.again(0); tell(view, "The secret, shown once", element("p", {}, "Verify signatures with it (Standard Webhooks). It cannot be read again."),
    made.secret ? json(made.secret) : element("p", {}, "A repeated answer leaves it out: delete the webhook and make it anew.")); });
  view.show("Webhooks", { project, actions: [button("New webhook", create)] }, section(null, pagedTable(view, "Webhooks", [
    ["Webhook", one => link(hash(project, "webhooks", one.id), named(one.id), "name")], ["Address", one => named(one.url, "mono"), "wide"],
    ["Is told", one => one.events.join(", ")], ["Created", one => instant(one.created_at), "nowrap"],
  ], page, list, "No webhook yet.")));
}

async function showWebhook(view, project, id) {
  const path = `${api(project)}/webhooks/${encode(id)}`;
  const list = cursor => readPage(`${path}/deliveries`, { cursor }, view.signal);
  const [webhook, page] = await Promise.all([read(path, view.signal), list()]);
  const ping = () => act(view, new Write("POST", `${path}/test`), made => {
    view.note(made.state === "delivered" ? `Ping delivered: ${made.response_status}.` : `Ping not delivered: ${made.error}`);
    view.again(0);
  });
  const again = one => act(view, new Write("POST", `${api(project)}/deliveries/${encode(one.id)}/redeliver`), () => {
    view.note("Queued to be sent again, under the same id.");
    view.again(0);
  });
  const remove = () => confirmWrite(view, "Delete the webhook?", "Its deliveries go with it.", "Delete", new Write("DELETE", path), () => view.go(hash(project, "webhooks")));
  view.show(webhook.id, { project, above: link(hash(project, "webhooks"), "Webhooks"), actions: [button("Send a ping", ping), button("Delete", remove, "danger")] },
    section(null, pairs([["Address", element("code", {}, webhook.url)], ["Is told", webhook.events.join(", ")], ["Created", instant(webhook.created_at)], ["By", named(webhook.created_by)]])),
    section("Deliveries", pagedTable(view, "Deliveries, newest first", [
      ["Event", one => element("span", { class: "name" }, one.event)], ["State", one => badge(one.state)],
      ["Last answer", one => [one.response_status && element("code", {}, one.response_status), " ", one.error], "wide"],
      ["Attempts", one => count(one.attempts), "number"], ["Created", one => instant(one.created_at), "nowrap"],
      ["Body", one => element("details", {}, element("summary", {}, "show"), json(one.payload))],
      ["Do", one => one.event !== "ping" && button("Send again", () => again(one))],
    ], page, list, "Nothing was delivered in the last 30 days.")));
  if (page.items.some(one => one.state === "queued")) view.again(4000);
}

async function showFailures(view, project) {
  const list = cursor => readPage(`${api(project)}/failures`, { cursor }, view.signal);
  const page = await list();
  const decide = one => askFor(view, "What is done about it?", form => [
    element("p", {}, named(one.sample)),
    element("label", {}, "State", form.select("state", ["resolved", "investigating", "wont_fix", "unresolved"], one.state)),
    element("p", { class: "hint" }, "What is resolved is open again when it comes back; wont_fix stays, whatever happens."),
  ], values => new Write("POST", `${api(project)}/failures/${encode(one.id)}/resolve`, { body: values }), () => view.again(0));
  view.show("Failures", { project }, section(null, element("p", { class: "muted" }, "What failed, grouped by its cause."), pagedTable(view, "Failures", [
    ["What", one => [element("span", { class: "name" }, one.kind, " ", named(one.work)), element("span", { class: "block small" }, named(one.sample))], "wide"],
    ["State", one => badge(one.state)], ["Times", one => count(one.occurrence_count), "number"],
    ["Last seen", one => instant(one.last_seen_at), "nowrap"], ["First seen", one => instant(one.first_seen_at), "nowrap"],
    ["Do", one => button("Decide", () => decide(one))],
  ], page, list, "Nothing failed that is not forgotten by now.")));
}

async function showDoctor(view) {
  const { checks } = await read("/doctor/jobengine-web/checks", view.signal);
  const ill = checks.filter(check => check.status !== "healthy").length;
  const order = [...checks].sort((one, other) => (one.status === "healthy") - (other.status === "healthy"));
  view.show("Doctor", { beside: badge(ill ? "unhealthy" : "healthy", ill ? `${count(ill)} of ${count(checks.length)} unhealthy` : "all healthy"),
    actions: [button("Look again", () => view.again(0))] },
    section(null, order.map(check => element("div", { class: "check-item" },
      element("div", { class: "row" }, badge(check.status), element("code", {}, check.id)), element("p", {}, check.summary),
      check.status !== "healthy" && check.remediation && element("p", {}, element("strong", {}, "What to do: "), check.remediation),
      element("details", {}, element("summary", {}, "Evidence"), json(check.evidence))))));
}
