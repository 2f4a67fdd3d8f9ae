// OpenAI's client for Node, unmodified, against a running deployment: OPENAI_BASE_URL and
// OPENAI_API_KEY point to it.
import OpenAI from "openai";

const client = new OpenAI();
const messages = [{ role: "user", content: process.argv[2] }];

const stream = await client.chat.completions.create({ model: "slm", messages, stream: true });
process.stdout.write("slm: ");
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}

const answer = await client.chat.completions.create({ model: "workflow/solo", messages });
console.log("\nteam:", answer.choices[0].message.content);
console.log("tokens:", answer.usage.total_tokens);
