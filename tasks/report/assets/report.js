// Opens the card of an id and filters cards. Texts are inserted as text, never as markup.

const cards = [...document.querySelectorAll(".card")];
const query = document.getElementById("query");
const found = document.getElementById("found");
const reasons = [...document.querySelectorAll("[data-reason]")];
const whole = (number) => number.toLocaleString("en");

function quoted(id) {
  return /^[\w./:@-]+$/.test(id) ? id : `'${id.replaceAll("'", `'\\''`)}'`;
}

// Opens the card of a job, or of a chunk of one; says how to get it if it is not on this page.
function openCard(id) {
  const target = document.getElementById(`job-${id}`);
  if (!target) {
    const command = document.createElement("code");
    command.textContent = `${query.dataset.command} ${quoted(id)}`;
    found.replaceChildren("No job of this report has this ID. To create a report with it, if the run has it: ", command);
    return;
  }
  const card = target.closest(".card");
  if (card.hidden) {
    query.value = "";
    for (const each of reasons) each.setAttribute("aria-pressed", "false");
    filter();
  }
  card.open = true;
  for (const chunk of card.querySelectorAll("li.hit")) chunk.classList.remove("hit");
  if (target !== card) {
    target.classList.add("hit");
    target.closest(".chunks").scrollTop = target.offsetTop;
  }
  card.scrollIntoView();
}

function openHash() {
  try {
    const id = decodeURIComponent(location.hash.slice(1));
    if (id.startsWith("job-")) openCard(id.slice(4));
  } catch {
    // An address that is not encoded names no card.
  }
}

// What a query is compared with: the tags and captions of a video, each with its score, and all texts of other cards.
const textsOf = new Map();
function readTexts(card) {
  const parts = [...card.querySelectorAll("i, q")].filter((part) => !part.closest(".bars, .strip"));
  if (!parts.length || card.dataset.reasons) return [{ text: card.textContent.toLowerCase(), score: 0, moment: "" }];
  const tags = parts.map((part) => ({
    text: part.textContent.toLowerCase(),
    score: Number(part.textContent.split(" ").pop()) || 0,
    moment: [part.textContent, part.closest("li")?.firstChild.textContent.trim()].filter(Boolean).join(" · "),
  }));
  return [...tags, { text: card.id.slice(4).toLowerCase(), score: -1, moment: "" }];
}

// Shows the cards that have a text with all words of the query, the best score first, among those of the pressed reason.
function filter() {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const reason = reasons.find((each) => each.getAttribute("aria-pressed") === "true")?.dataset.reason;
  const best = new Map();
  for (const card of cards) {
    if (!textsOf.has(card)) textsOf.set(card, readTexts(card));
    const hits = textsOf.get(card).filter(({ text }) => words.every((word) => text.includes(word)));
    if (hits.length && (!reason || card.dataset.reasons.split("|").includes(reason))) {
      best.set(card, hits.reduce((one, other) => (other.score > one.score ? other : one)));
    }
    card.hidden = !best.has(card);
    const moment = card.querySelector(".moment");
    if (moment) moment.textContent = words.length ? (best.get(card)?.moment ?? "") : "";
  }
  const order = words.length ? [...best.keys()].sort((one, other) => best.get(other).score - best.get(one).score) : cards;
  document.getElementById("cards").append(...order);
  found.textContent = words.length || reason ? `${whole(best.size)} of ${whole(cards.length)}.` : "";
}

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = query.value.trim();
  if (!id) return;
  const shown = cards.filter((card) => !card.hidden);
  if (document.getElementById(`job-${id}`) || shown.length !== 1) openCard(id);
  else shown[0].open = true;
});
query.addEventListener("input", filter);
for (const button of reasons) {
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") === "true";
    for (const each of reasons) each.setAttribute("aria-pressed", String(each === button && !pressed));
    filter();
  });
}
for (const button of document.querySelectorAll("[data-query]")) {
  button.addEventListener("click", () => {
    query.value = button.dataset.query;
    filter();
    document.getElementById("cards").scrollIntoView();
  });
}
addEventListener("hashchange", openHash);
openHash();

// Frames are on the page once; each card that is opened has its own copy of those that it shares.
for (const card of cards) {
  card.addEventListener("toggle", () => {
    for (const note of card.querySelectorAll("[data-same]")) {
      const copy = document.getElementById(note.dataset.same).cloneNode(true);
      copy.removeAttribute("id");
      note.replaceWith(copy);
    }
  });
}
