"""Writes the files of this folder: pip install pyarrow tokenizers.

Tokenizers like those of GPT-2 (bytes), Llama 2 (a metaspace and bytes where a character is not known) and BERT (WordPiece), trained on a few sentences,
with the tokens that Python's `tokenizers` (whose regular expressions are those of Oniguruma) has for some texts; tables that Arrow's writer wrote.
"""

import json
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
SENTENCES = [
    "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune, or to take arms against a sea of troubles",
    "fn main() {\n    println!(\"{}\", 42);\n}\n\nlet x = [1, 2, 3];\n",
    "It's 12 o'clock; we'll see whether they've come.",
    "Größe, naïve façade, 你好, мир",
]
TEXTS = SENTENCES + ["", " ", "\n\n  x\t y ", "😀 is not in the text", "<|endoftext|>a</s>b", "12345 ..!? ÀÉ"]


def gpt2():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False))
    return t


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"]
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=400, special_tokens=special + [f"<0x{i:02X}>" for i in range(256)], show_progress=False,
        limit_alphabet=60))
    state = json.loads(t.to_str())
    state["added_tokens"] = [a for a in state["added_tokens"] if a["content"] in special]
    return Tokenizer.from_str(json.dumps(state))


def bert():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(SENTENCES, trainers.WordPieceTrainer(
        vocab_size=120, special_tokens=["[UNK]", "[SEP]"], show_progress=False))
    return t


for name, tokenizer in [("gpt2", gpt2()), ("llama2", llama2()), ("bert", bert())]:
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    tokens = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    cases = [{"text": x, "tokens": ids, "decoded": tokenizer.decode(ids)} for x, ids in zip(TEXTS, tokens)]
    (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0))
(HERE / "bert" / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "[SEP]"}}))

texts = [f"row {i} of a table" if i % 7 else None for i in range(1000)]
table = pa.table({"id": list(range(1000)), "text": texts, "tags": [["a"]] * 1000})
pq.write_table(table, HERE / "snappy.parquet", compression="snappy", row_group_size=400)
pq.write_table(table, HERE / "zstd.parquet", compression="zstd", use_dictionary=False)
pq.write_table(table.select(["text"]), HERE / "gzip.parquet", compression="gzip", data_page_version="2.0")
bad = pa.table({"text": pa.array([b"good", b"b\xffd"], pa.binary())})
pq.write_table(bad, HERE / "not-utf8.parquet", compression="none")
