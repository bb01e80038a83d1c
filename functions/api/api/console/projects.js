// Projects, datasets and imports.

const encode = encodeURIComponent;
const api = project => `/v1/projects/${encode(project)}`;
const hash = (project, ...parts) => `#/${["projects", project, ...parts].map(encode).join("/")}`;

async function showProjects(view) {
  const page = await readPage("/v1/projects", { limit: 200 }, view.signal);
  const create = () => askFor(view, "New project", form => [
    element("label", {}, "Id", form.input("id", { required: true, pattern: "[a-z0-9][a-z0-9\\-]{0,62}", maxlength: 63 }),
      element("span", { class: "hint" }, "Lower-case letters, digits and hyphens; it never changes.")),
    element("label", {}, "Description", form.input("description", { maxlength: 1000 })),
  ], values => new Write("POST", "/v1/projects", { body: values }), made => view.go(hash(made.id, "runs")));
  view.show("Projects", { actions: [button("New project", create)] }, section(null, pagedTable(view, "Projects", [
    ["Project", one => [element("a", { href: hash(one.id, "runs"), class: "name" }, named(one.id)),
      one.description && element("span", { class: "block small muted" }, named(one.description))]],
    ["State", one => badge(one.paused ? "skipped" : "done", one.paused ? "paused" : "active")],
    ["Runs at most", one => count(one.quotas.max_stored_runs), "number"],
    ["Runs are kept", one => one.run_retention || muted("as installed")],
    ["Created", one => instant(one.created_at), "nowrap"],
  ], page, cursor => readPage("/v1/projects", { limit: 200, cursor }, view.signal),
  "No project yet. A new one takes a minute to fill.")));
}

async function showDatasets(view, project) {
  const list = cursor => readPage(`${api(project)}/datasets`, { cursor }, view.signal);
  const imports = cursor => readPage(`${api(project)}/imports`, { cursor, limit: 20 }, view.signal);
  const [page, importPage] = await Promise.all([list(), imports()]);
  view.show("Datasets", { project, actions: [button("Publish a file", () => publish(view, project))] },
    section(null, pagedTable(view, "Dataset versions", [
      ["Dataset", one => link(hash(project, "datasets", `${one.name}@${one.version}`), named(`${one.name}@${one.version}`), "name")],
      ["Records", one => count(one.records), "number"],
      ["Size", one => bytes(one.bytes), "number"],
      ["SHA-256", one => element("code", { title: one.sha256 }, `${one.sha256.slice(0, 12)}…`)],
      ["Created", one => instant(one.created_at), "nowrap"],
    ], page, list, "No dataset yet. Publish a JSONL or Parquet file, or drop one into the bucket.")),
    section("Imports", pagedTable(view, "Imports", [
      ["File", one => element("a", { href: hash(project, "imports", one.id) }, named(one.uri.split("/").pop()))],
      ["State", one => badge(one.state)],
      ["Outcome", one => describeImport(project, one), "wide"],
      ["Created", one => instant(one.created_at), "nowrap"],
    ], importPage, imports, "No file was imported.")));
}

function describeImport(project, one) {
  if (one.error) return element("span", { class: "bad-note" }, one.error.detail);
  if (!one.dataset) return one.validation ? `${plural(one.validation.records, "record")}, checked only` : muted("not yet");
  const version = `${one.dataset.name}@${one.dataset.version}`;
  return link(hash(project, "datasets", version), named(version));
}

function publish(view, project) {
  askFor(view, "Publish a file", form => [
    element("label", {}, "File, JSONL or Parquet, up to 4 MiB", form.input("file", { type: "file", required: true, accept: ".jsonl,.parquet" })),
    element("label", {}, "Name of the dataset", form.input("name", { required: true, maxlength: 100 })),
    element("p", { class: "hint" }, "Larger files: the client, or the bucket's incoming prefix."),
  ], values => {
    const format = values.file.name.endsWith(".parquet") ? "parquet" : "jsonl";
    const query = new URLSearchParams({ name: values.name, format });
    return new Write("POST", `${api(project)}/datasets?${query}`, { raw: values.file });
  }, made => view.go(hash(project, "datasets", `${made.name}@${made.version}`)));
}

async function showDataset(view, project, version) {
  const dataset = await read(`${api(project)}/datasets/${encode(version)}`, view.signal);
  const list = cursor => readPage(`${api(project)}/datasets/${encode(version)}/records`, { limit: 20, cursor }, view.signal);
  const page = await list();
  const remove = () => confirmWrite(view, `Delete ${dataset.name}@${dataset.version}?`,
    "All names and versions of this content go at once. Runs made of it stay.", "Delete",
    new Write("DELETE", `${api(project)}/datasets/${dataset.sha256}`), () => view.go(hash(project, "datasets")));
  view.show(`${dataset.name}@${dataset.version}`, { project, above: link(hash(project, "datasets"), "Datasets"), actions: [
    button("Start a run", () => startRun(view, project, dataset), "main"), button("Delete", remove, "danger")] },
    facts([["Records", count(dataset.records)], ["Size", bytes(dataset.bytes)], ["Version", count(dataset.version)]]),
    section("Made from", pairs([["SHA-256", element("code", {}, dataset.sha256)], ["Object", element("code", {}, dataset.path)],
      ["Created", instant(dataset.created_at)], ["By", named(dataset.created_by)]])),
    section("Records", pagedTable(view, "Records", [
      ["Id", one => named(one.id, "mono")],
      ["Input", one => excerpt(one.input), "wide"],
      ["Output", one => excerpt(one.output), "wide"],
      ["Whole", one => element("details", {}, element("summary", {}, "show"), json(one))],
    ], page, list)));
}

function excerpt(value) {
  if (value === undefined || value === null) return muted(UNKNOWN);
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return named(text.length > 160 ? `${text.slice(0, 160)}…` : text);
}

async function showImport(view, project, id) {
  const one = await read(`${api(project)}/imports/${encode(id)}`, view.signal);
  view.show(one.uri.split("/").pop(), { project, above: link(hash(project, "datasets"), "Imports"), beside: badge(one.state) },
    one.error && section("What is wrong with it", element("p", {}, element("code", {}, one.error.code), " ", one.error.detail),
      one.error.errors.length ? table("Rows and fields that are wrong", [
        ["Row", error => describeRow(error.row), "nowrap"], ["Field", error => named(error.field || UNKNOWN, "mono")],
        ["What is wrong", error => error.message, "wide"]], one.error.errors) : null),
    section("Import", pairs([["File", element("code", {}, one.uri)], ["Format", one.format], !one.error && ["Dataset", describeImport(project, one)],
      ["Attempts", count(one.attempts)], ["Created", instant(one.created_at)], ["Completed", instant(one.completed_at)]])));
  if (!["succeeded", "failed"].includes(one.state)) view.again(2000);
}
