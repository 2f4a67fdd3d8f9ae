// The npm package `openai`, on Node.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const folder = process.env.CLIENT_FOLDER;
const resolved = createRequire(`${folder}/package.json`).resolve("openai");
const OpenAI = (await import(pathToFileURL(resolved))).default;
const Q = JSON.parse(readFileSync(new URL("questions.json", import.meta.url)));
const client = new OpenAI();
const root = process.env.OPENAI_BASE_URL.replace(/\/v1$/, "");

const user = (content) => ({ role: "user", content });
const create = (body, via = client, options) => via.chat.completions.create(body, options);
const ask = (text, more = {}, via = client, options) =>
  create({ model: "llm", messages: [user(text)], ...more }, via, options);
const text = (completion) => completion.choices[0].message.content;
const called = (calls) => (calls ?? []).map((c) => [c.function.name, JSON.parse(c.function.arguments)]);
const calls = (completion) => called(completion.choices[0].message.tool_calls);
const collected = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
const failed = async (promise) => {
  try {
    await promise;
  } catch (error) {
    return {
      class: error.constructor.name,
      status: error.status ?? null,
      message: error.message,
      param: error.param ?? null,
      code: error.code ?? null,
    };
  }
  throw new Error("it did not fail");
};
const instructed = async (role) =>
  text(await create({ model: "llm", messages: [{ role, content: Q.instruction }, user(Q.greeting)] }));
const tools = [Q.weather_tool];

const behaviours = {
  plain_question: async () => text(await ask(Q.plain)),
  system_message: () => instructed("system"),
  developer_message: () => instructed("developer"),
  history: async () => {
    const first = (await ask(Q.name)).choices[0].message;
    return text(await create({ model: "llm", messages: [user(Q.name), first, user(Q.asks_name)] }));
  },
  streaming: async () =>
    (await collected(await ask(Q.counting, { model: "slow", stream: true })))
      .map((chunk) => chunk.choices[0].delta.content)
      .filter(Boolean),
  stream_usage: async () => {
    const options = { stream: true, stream_options: { include_usage: true } };
    const chunks = await collected(await ask(Q.counting, options));
    return [(await ask(Q.counting)).usage, chunks.at(-1).usage];
  },
  tool_round_trip: async () => {
    const messages = [user(Q.weather)];
    const { message } = (await create({ model: "llm", messages, tools })).choices[0];
    const call = message.tool_calls[0];
    messages.push(message, { role: "tool", tool_call_id: call.id, content: Q.rain });
    const last = await create({ model: "llm", messages, tools });
    return [JSON.parse(call.function.arguments), text(last)];
  },
  streamed_tool_call: async () => {
    const body = { model: "llm", messages: [user(Q.weather)], tools };
    return calls(await client.chat.completions.stream(body).finalChatCompletion());
  },
  tool_choice_none: async () => calls(await ask(Q.weather, { tools, tool_choice: "none" })),
  tool_choice_required: async () => calls(await ask(Q.sum, { tools, tool_choice: "required" })),
  tool_choice_named: async () => {
    const tool_choice = { type: "function", function: { name: "now" } };
    return calls(await ask(Q.sum, { tools: [...tools, Q.now_tool], tool_choice }));
  },
  parallel_tool_calls: async () => [
    calls(await ask(Q.two_cities, { tools })),
    calls(await ask(Q.two_cities, { tools, parallel_tool_calls: false })),
  ],
  structured_output: async () => {
    const json_schema = { name: "total", strict: true, schema: Q.sum_schema };
    const response_format = { type: "json_schema", json_schema };
    const body = { model: "llm", messages: [user(Q.sum)], response_format };
    return (await client.chat.completions.parse(body)).choices[0].message.parsed;
  },
  several_choices: async () => (await ask(Q.fruit, { n: 2 })).choices.map((c) => c.message.content),
  seed: async () => {
    const texts = [];
    for (let i = 0; i < 3; i++) texts.push(text(await ask(Q.sampled, { seed: 5 })));
    return texts;
  },
  stop: async () => text(await ask(Q.counting, { stop: [" four"] })),
  length: async () => {
    const choice = (await ask(Q.counting, { max_completion_tokens: 3 })).choices[0];
    return [choice.finish_reason, choice.message.content];
  },
  logprobs: async () => {
    const tokens = (await ask(Q.counting, { logprobs: true })).choices[0].logprobs.content;
    return [tokens.map((t) => t.token).join(""), tokens.map((t) => t.logprob)];
  },
  unknown_model: () => failed(ask(Q.greeting, { model: "nobody" })),
  policy: async () => [
    text(await ask(Q.plain, { model: "llm/later" })),
    text(await ask(Q.plain, { model: "llm/later@0" })),
  ],
  other_version: () => failed(ask(Q.greeting, { model: "llm/later@3" })),
  embeddings: () => failed(client.embeddings.create({ model: "llm", input: "x" })),
  wrong_key: () => failed(ask(Q.greeting, {}, new OpenAI({ apiKey: "sk-wrong" }))),
  invalid_field: () => failed(ask(Q.greeting, { temperature: 9 })),
  overload: async () => text(await ask(Q.plain)),
  timeout: () => failed(ask(Q.greeting, { model: "asleep" }, client, { timeout: 500, maxRetries: 0 })),
  request_id: async () => {
    const completion = await ask(Q.greeting);
    return [completion.id, completion._request_id];
  },
  models: async () => (await collected(await client.models.list())).map((model) => model.id),
  session: async () => {
    const inSession = new OpenAI({ baseURL: `${root}/sessions/s-${randomUUID()}/v1` });
    const messages = [user(Q.plain)];
    const first = await create({ model: "llm", messages }, inSession);
    messages.push(first.choices[0].message, user("Are you sure?"));
    return [first.id, (await create({ model: "llm", messages }, inSession)).id];
  },
  idempotency_key: async () => {
    const headers = { "Idempotency-Key": randomUUID() };
    const first = await ask(Q.sampled, {}, client, { headers });
    return [first.id, (await ask(Q.sampled, {}, client, { headers })).id];
  },
  workflow: async () => text(await ask(Q.plain, { model: "workflow/solo" })),
  unicode: async () => text(await ask(Q.unicode)),
  abandoned_stream: async () => {
    const stream = await ask(Q.counting, { model: "drip", stream: true });
    for await (const chunk of stream) {
      const piece = chunk.choices[0].delta.content;
      if (piece) return piece;
    }
  },
};

console.log(JSON.stringify(Object.keys(behaviours)));
for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify({ outcome: await behaviours[line.trim()]() }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error.stack) }));
  }
}
