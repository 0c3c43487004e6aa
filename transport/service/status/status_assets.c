/* SPDX-License-Identifier: Apache-2.0 */
/* How the page for people looks, and how its numbers move. Without the script it is loaded again
 * every two seconds. */
#include "transport/service/status/status_render.h"

const char mr__status_css[] =
    ":root{color-scheme:light dark;--line:#d8d8d8;--soft:#666;--bar:#3a6ea5;--bad:#a32020}\n"
    "@media(prefers-color-scheme:dark){:root{--line:#444;--soft:#aaa;--bar:#7fb0e0;--bad:#ff9090}}"
    "\n"
    "body{font:15px/1.45 system-ui,sans-serif;max-width:72rem;margin:1.5rem auto;padding:0 1rem}\n"
    "h1{font-size:1.35rem;margin:0 0 .8rem}\n"
    "h2{font-size:1.05rem;margin:1.8rem 0 .4rem}\n"
    "dl{display:flex;flex-wrap:wrap;gap:.6rem 2.2rem;margin:0}\n"
    "dt{color:var(--soft);font-size:.85rem}\n"
    "dd{margin:0;font-size:1.15rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}\n"
    ".wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;min-width:60%}\n"
    "th{text-align:left;font-weight:600;font-size:.85rem;color:var(--soft);white-space:nowrap}\n"
    "th,td{padding:.25rem 1.6rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}\n"
    "td{overflow-wrap:anywhere}\n"
    "th:last-child,td:last-child{padding-right:0}\n"
    ".n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    "progress{width:5rem;height:.7rem;margin-left:.5rem;accent-color:var(--bar)}\n"
    "p{margin:.3rem 0;color:var(--soft)}\n"
    "footer{margin-top:2rem;color:var(--soft);font-size:.85rem}\n"
    "a{color:inherit}\n"
    ".alarm{color:var(--bad);font-weight:600}\n";

const char mr__status_js[] =
    "'use strict';\nconst wait = ms => new Promise(done => setTimeout(done, ms));\n(async () => "
    "{\n let seen = new Date();\n for (;;) {\n await wait(1000);\n if (document.hidden || "
    "!getSelection().isCollapsed) continue; /* hidden, or text is being copied */\n const away = "
    "document.getElementById('away');\n try {\n const answer = await fetch('/', {cache: "
    "'no-store', signal: AbortSignal.timeout(5000)});\n const page = new "
    "DOMParser().parseFromString(await answer.text(), 'text/html');\n "
    "document.querySelector('main').replaceWith(page.querySelector('main'));\n seen = new "
    "Date();\n away.textContent = '';\n } catch (e) {\n away.textContent = 'No connection. Last "
    "update: ' + seen.toLocaleTimeString() + '.';\n }\n }\n})();\n";
