"""Weights files of transformers, and what transformers makes of ours. Run by hand; needs torch and transformers.

    python3 hf_make.py make [NAME ..]       random models -> hf_NAME.safetensors, hf_NAME.logits.json (both committed)
    python3 hf_make.py check SHARDC WORK    trains each model, exports it, loads the directory with from_pretrained and
                                            compares the logits of a prompt with ours
"""
import json, os, subprocess, sys
import torch
from hf_run import NAMES, PROMPT, export, logits_of_ours
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, GPT2Config, LlamaConfig

HERE = os.path.dirname(os.path.abspath(__file__))


def configs():
    return dict(
        gpt2=GPT2Config(vocab_size=67, n_positions=32, n_embd=24, n_head=3, n_layer=2),
        llama=LlamaConfig(vocab_size=67, hidden_size=24, intermediate_size=40, num_hidden_layers=2, head_dim=8,
                          num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=500000.0,
                          max_position_embeddings=16, tie_word_embeddings=False),
        bert=BertConfig(vocab_size=67, hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40,
                        max_position_embeddings=32, type_vocab_size=2))


def kind(name): return AutoModelForMaskedLM if name == 'bert' else AutoModelForCausalLM


def logits(model):
    with torch.no_grad(): return model.eval()(torch.tensor([list(PROMPT.encode())])).logits[0].float()


def make(*names):
    for name, config in configs().items():
        if names and name not in names: continue
        torch.manual_seed(1)
        model = kind(name).from_config(config)
        for p in model.parameters(): torch.nn.init.normal_(p, 1.0 if p.ndim == 1 else 0.0, 0.1)
        model.save_pretrained(f'{HERE}/work')
        os.replace(f'{HERE}/work/model.safetensors', f'{HERE}/hf_{name}.safetensors')
        rows = [[float(f'{x:.7g}') for x in row] for row in logits(model).tolist()]
        json.dump(dict(prompt=PROMPT, logits=rows), open(f'{HERE}/hf_{name}.logits.json', 'w'))
        subprocess.run(['rm', '-r', f'{HERE}/work'])


def check(shardc, work):
    for name in NAMES:
        exe, folder, trained = export(shardc, name, work, train=True)
        model, info = kind(name).from_pretrained(folder, output_loading_info=True)
        left = {k: v for k, v in info.items() if v}
        ours = torch.tensor(logits_of_ours(exe, f'{work}/{name}.dump', '--out', trained)).reshape(len(PROMPT), -1)
        worst = (logits(model) - ours).abs().max().item()
        print(f'{name}: loading info {left or "clean"}; logits differ by at most {worst:.1e}')
        if left or not worst < 1e-4: sys.exit(1)


make(*sys.argv[2:]) if sys.argv[1] == 'make' else check(sys.argv[2], os.path.abspath(sys.argv[3]))
