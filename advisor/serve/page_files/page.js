// Sends the settings of the page to the service a moment after the last change, and shows the answer.

import { addSection, showReport } from "./report.js";

const CHANGE_PAUSE_MS = 300;
const MOST_BYTES = 4 * 1024 * 1024;
const form = document.getElementById("settings");
const root = document.getElementById("report");
const statusLine = document.getElementById("status");
const toAnswer = document.getElementById("to-answer");
const problemLine = document.getElementById("problem");
const drop = document.querySelector(".drop");
const own = { workload: null };
let asking = new AbortController();
let pause = 0;

/** The settings by option name; empty ones are left to the service. */
function settings() {
  const given = [...new FormData(form)].filter(([name, value]) => name !== "" && typeof value === "string" && value.trim());
  return Object.fromEntries(given);
}

async function workloadOf(example, signal) {
  if (!example) return own.workload;
  const reply = await fetch(`/page/${example}.json`, { signal });
  return reply.json();
}

/** Ask the service and show the answer; abort a request that a newer one replaces. */
async function update() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  root.setAttribute("aria-busy", "true");
  say("Working...");
  try {
    const { example, ...options } = settings();
    const body = JSON.stringify({ workload: await workloadOf(example, signal), options });
    const report = await answerTo("report", body, signal);
    clearProblem();
    keepingOpen(() => showReport(report, root));
    root.removeAttribute("aria-busy");
    say(report.figures.length ? "Answered. Computing break-even..." : "Answered.", report.headline);
    if (!report.figures.length) return;
    const breakEven = await answerTo("break-even", body, signal).catch(ifNothingFits);
    if (breakEven) addSection(breakEven, report.money, root, "basis");
    say("Answered.", report.headline);
  } catch (error) {
    if (signal.aborted) return;
    showProblem(error); // the answer stays marked as busy: it is not the answer to these settings
  }
}

/** Show a status above the answer; on a phone, the headline is also at the end of the form. */
function say(status, headline = status) {
  statusLine.textContent = status;
  toAnswer.textContent = headline;
}

/** Leave break-even out where the limits leave no CPU or no GPU. */
function ifNothingFits(error) {
  if (error.code !== "nothing-fits") throw error;
  return null;
}

async function answerTo(question, body, signal) {
  const headers = { "Content-Type": "application/json" };
  const token = document.getElementById("token").value;
  if (token) headers.Authorization = `Bearer ${token}`;
  const reply = await fetch(`/page/${question}`, { method: "POST", body, headers, signal });
  const answer = await reply.json();
  if (reply.ok) return answer;
  if (reply.status === 401) document.getElementById("access").hidden = false;
  throw Object.assign(new Error(answer.error.message), answer.error);
}

function showProblem({ message, hint, field }) {
  clearProblem();
  const name = field?.replace("options.", "");
  const input = name ? form.elements.namedItem(name) : null;
  const label = input?.labels?.[0]?.firstChild.textContent.trim();
  const text = label ? `${label}: ${message.replace(/^options\.\w+: (--[\w-]+: )?/, "")}` : message;
  problemLine.textContent = hint ? `${text}: ${hint}.` : `${text}.`;
  say("", problemLine.textContent);
  problemLine.hidden = false;
  input?.setAttribute("aria-invalid", "true");
  input?.setAttribute("aria-describedby", "problem");
}

function clearProblem() {
  problemLine.hidden = true;
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}

/** Keep tables open that the reader has opened, when the report is drawn again. */
function keepingOpen(draw) {
  const labels = (selector) => [...root.querySelectorAll(selector)].map((one) => one.textContent);
  const open = new Set(labels("figure details[open] > summary"));
  draw();
  for (const summary of root.querySelectorAll("figure summary")) {
    if (open.has(summary.textContent)) summary.parentElement.open = true;
  }
}

function changed() {
  const link = new URLSearchParams(settings()).toString();
  history.replaceState(null, "", link ? `#${link}` : "#");
  clearTimeout(pause);
  pause = setTimeout(update, CHANGE_PAUSE_MS);
}

async function takeFile(file) {
  try {
    if (file.size > MOST_BYTES) throw new SyntaxError(`it has ${file.size.toLocaleString("en")} bytes; the limit is 4 MiB`);
    own.workload = JSON.parse(await file.text());
  } catch (error) {
    showProblem({ message: `${file.name} is not a workload (${error.message})`, hint: "advise profile model.py -o workload.json writes one" });
    return;
  }
  form.elements.example.value = "";
  changed();
}

function readLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of given) {
    const input = form.elements.namedItem(name);
    if (input) input.value = value;
  }
  if (!form.elements.example.value && !own.workload) form.elements.example.selectedIndex = 0;
}

async function copyLink({ target }) {
  await navigator.clipboard.writeText(location.href);
  target.textContent = "Copied";
  setTimeout(() => (target.textContent = "Copy the link to these settings"), 2000);
}

form.addEventListener("input", ({ target }) => target.id !== "file" && changed());
form.addEventListener("reset", () => setTimeout(changed));
form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("file").addEventListener("change", ({ target }) => target.files[0] && takeFile(target.files[0]));
document.getElementById("copy").addEventListener("click", copyLink);
document.getElementById("to-settings").addEventListener("click", () => form.scrollIntoView());
toAnswer.addEventListener("click", () => document.getElementById("answer").scrollIntoView());
for (const name of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragenter" || name === "dragover");
    if (name === "drop" && event.dataTransfer.files[0]) takeFile(event.dataTransfer.files[0]);
  });
}
window.addEventListener("hashchange", () => {
  readLink();
  update();
});
readLink();
update();
