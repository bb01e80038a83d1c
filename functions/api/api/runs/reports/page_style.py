"""The style of a report's page: one set of colours for light, one for the dark, the light one for paper."""

from api.runs.reports.markup import Html

# Contrast of text on its ground is at least 4.5 : 1 in both (WCAG 2.2, 1.4.3); no meaning is in colour alone.
STYLE = Html("""
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#15191e;--muted:#59636e;--line:#dfe3e8;
--good:#0b6e46;--good-soft:#dcf3e7;--bad:#b42318;--bad-soft:#fde8e6;--accent:#2f54d0;--soft:#b9c7f5;
--good-fill:#2a9d6a;--bad-fill:#df5448;--skipped-fill:#b8c0ca;--error-fill:#7a1d15}
@media (prefers-color-scheme:dark){:root{--ground:#0f1216;--card:#181c22;--ink:#e7eaee;--muted:#9ba6b2;--line:#2b323b;
--good:#5fd39a;--good-soft:#12301f;--bad:#ff9b90;--bad-soft:#3b1815;--accent:#93abff;--soft:#3a4a8a;
--good-fill:#37a873;--bad-fill:#dd5a4f;--skipped-fill:#58626e;--error-fill:#ffb4ab}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:64rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}
header{margin-bottom:1.75rem}
h1{font-size:clamp(1.5rem,1.1rem + 2vw,2.1rem);line-height:1.2;margin:0;letter-spacing:-.015em;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:0 0 .5rem;letter-spacing:-.005em}
h3{font-size:.95rem;margin:1.5rem 0 .25rem;overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:1.35rem 1.5rem;
margin-top:1.25rem}
p{margin:.25rem 0}
.brand{text-transform:uppercase;letter-spacing:.09em;font-size:.75rem;font-weight:600;color:var(--muted);
margin:0 0 .5rem}
.headline{display:flex;flex-wrap:wrap;align-items:center;gap:.6rem 1rem}
.verdict{font-size:1.08rem;margin-top:.6rem;max-width:48rem;overflow-wrap:anywhere}
.badge{display:inline-block;border-radius:999px;padding:.1rem .65rem;font-weight:600;font-size:.85rem;
white-space:nowrap}
.headline .badge{font-size:1rem;padding:.25rem .95rem}
.good{color:var(--good);background:var(--good-soft)}.bad{color:var(--bad);background:var(--bad-soft)}
.bad-text{color:var(--bad);font-weight:600}
.muted{color:var(--muted)}.small{font-size:.85rem}.block{display:block}
.name{font-weight:600;overflow-wrap:anywhere}
.id{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.88rem;overflow-wrap:anywhere}
.reason{color:var(--muted);font-size:.92rem;overflow-wrap:anywhere}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));margin:0;background:var(--card);
border:1px solid var(--line);border-radius:14px;overflow:hidden}
.facts div{box-shadow:0 0 0 .5px var(--line);padding:.85rem 1.1rem}
dt{color:var(--muted);font-size:.82rem}
dd{margin:0}
.facts dd{font-size:1.3rem;font-weight:650;font-variant-numeric:tabular-nums;letter-spacing:-.01em}
table{width:100%;border-collapse:collapse;position:relative}
th{text-align:left;font-size:.8rem;font-weight:600;color:var(--muted);padding:.4rem .75rem .4rem 0;
border-bottom:1px solid var(--line);vertical-align:bottom}
td{padding:.65rem .75rem .65rem 0;border-bottom:1px solid var(--line);vertical-align:top}
tbody tr:last-child td{border-bottom:0;padding-bottom:0}
th.number,td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td:first-child{min-width:8rem}
td.wide{min-width:14rem;width:38%;overflow-wrap:anywhere}
th.wide,td.wide{padding-left:1rem}
.worst table{table-layout:fixed}
.worst th:nth-child(1){width:36%}.worst th:nth-child(n+2):not(.wide){width:13%}
.records{list-style:none;margin:0;padding:0}
.records li{padding:.8rem 0;border-bottom:1px solid var(--line)}
.records li:last-child{border-bottom:0;padding-bottom:.2rem}
.record{display:flex;flex-wrap:wrap;gap:.2rem 1rem;align-items:baseline;margin:0;font-variant-numeric:tabular-nums}
.texts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,12.5rem),1fr));gap:.5rem 1.5rem;
margin:.4rem 0 0}
.texts dt{font-size:.78rem}
.texts dd{font-size:.92rem;line-height:1.45;white-space:pre-wrap;overflow-wrap:anywhere;overflow:hidden}
.plot{margin:0}
svg{display:block;overflow:visible}
.axis{stroke:var(--line);stroke-width:2}
.range{stroke:var(--soft);stroke-width:8;stroke-linecap:butt}
.end{stroke:var(--accent);stroke-width:2}
.dot{fill:var(--accent);stroke:var(--card);stroke-width:2}
line.gate{stroke-width:2;stroke-dasharray:3 3}
line.gate.good{stroke:var(--good)}line.gate.bad{stroke:var(--bad)}
.bar{fill:var(--accent)}
.mean{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:4 3}
.ends{display:flex;justify-content:space-between;font-size:.76rem;color:var(--muted);font-variant-numeric:tabular-nums}
.middle{color:var(--ink)}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr));gap:1.75rem 2.25rem;
margin-top:.75rem}
figure{margin:0;break-inside:avoid;align-self:start}
figcaption{margin-bottom:.5rem}
.histogram{margin-bottom:.15rem}
.outcomes{margin-top:.6rem;border-radius:5px;overflow:hidden}
.good-fill{fill:var(--good-fill);background:var(--good-fill)}.bad-fill{fill:var(--bad-fill);background:var(--bad-fill)}
.scored-fill{fill:var(--accent);background:var(--accent)}
.skipped-fill{fill:var(--skipped-fill);background:var(--skipped-fill)}
.error-fill{fill:var(--error-fill);background:var(--error-fill)}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;list-style:none;margin:.45rem 0 0;padding:0;font-size:.85rem}
.key{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin-right:.4em}
.provenance{display:grid;gap:.35rem;margin:.5rem 0 0}
.provenance div{display:grid;grid-template-columns:10rem 1fr;gap:1rem;align-items:baseline}
.provenance dd{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.85rem;overflow-wrap:anywhere}
@media (max-width:44rem){
main{padding:1.5rem .9rem 3rem}
section{padding:1.1rem 1rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr{display:block}
tr{padding:.7rem 0;border-bottom:1px solid var(--line)}
tbody tr:last-child{border-bottom:0;padding-bottom:0}
td,td.number,td.wide{display:grid;grid-template-columns:7.5rem minmax(0,1fr);gap:.75rem;border:0;padding:.15rem 0;
text-align:left;width:auto;min-width:0;white-space:normal}
td::before{content:attr(data-label);color:var(--muted);font-size:.85rem}
td:first-child{min-width:0}
td.wide{display:block;padding:.35rem 0}
td.wide::before{display:block}
.facts{grid-template-columns:1fr 1fr}
.provenance div{grid-template-columns:1fr;gap:0;margin-bottom:.35rem}
}
@page{margin:14mm}
@media print{
:root{color-scheme:light;--ground:#fff;--card:#fff;--ink:#000;--muted:#444;--line:#bbb;--good:#0b6e46;--good-soft:#fff;
--bad:#b42318;--bad-soft:#fff;--accent:#2f54d0;--soft:#b9c7f5;--good-fill:#2a9d6a;--bad-fill:#df5448;
--skipped-fill:#b8c0ca;--error-fill:#7a1d15}
body{font-size:11pt;-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{max-width:none;padding:0}
.facts{grid-template-columns:none;grid-auto-flow:column;grid-auto-columns:auto}
.facts div{padding:.5rem .7rem}.facts dd{font-size:1.05rem}
section{border:0;border-top:1px solid var(--line);border-radius:0;padding:.8rem 0;margin-top:.8rem}
td{padding-top:.3rem;padding-bottom:.3rem}
.provenance div{grid-template-columns:8rem 1fr}.provenance dd{font-size:.78rem}
tr,figure,.records li{break-inside:avoid}
h2,h3,h2+p,thead,.worst tbody tr:nth-child(-n+2){break-after:avoid}
.badge{border:1px solid currentColor}
}
""")
