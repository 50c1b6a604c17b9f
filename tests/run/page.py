"""The page of `dump --format html` in a browser: every view is drawn, and a line of source, IR, C or assembly finds the
others.

    python3 page.py SHARDC MODEL.shard

Skips, loudly, where there is no headless Chromium.
"""
import html, json, re, shutil, subprocess, sys
from common import check, read, run, workdir

shardc, model = sys.argv[1], sys.argv[2]
browser = next((b for b in ('chromium', 'chromium-browser', 'google-chrome') if shutil.which(b)), None)
if not browser:
    print('SKIPPED: no chromium on PATH')
    sys.exit(77)
d = workdir()
run(shardc, 'dump', model, '--format', 'html', '-o', f'{d}/page.html')

# Clicks as a reader would, and writes the visible text into the title.
script = """<script>
const seen = {errors: [], views: [], links: {}, heads: []};
window.onerror = m => seen.errors.push(String(m));
const hits = p => p.rows.filter(r => r.classList.contains('hit') || r.classList.contains('near')).map(r => p.rows.indexOf(r));
const click = (p, i) => { p.rows[i].click(); return panes.map(q => [hits(q), q === panes[3] ? q.kernel : null]); };
try {
  for (tab = 0; tab < tabs.length; tab++) for (stage = 0; stage <= last; stage++) { draw(); seen.views.push(document.getElementById('main').querySelectorAll('*').length); }
  for (tab = 3, stage = 0; stage <= last; stage++) { draw(); seen.heads.push(document.getElementById('head').textContent); }
  tab = 2, stage = last; draw();
  const line = panes[1].lines.findIndex(l => /= dot\\[/.test(l.text)), kernel = panes[1].lines[line].kernel, place = panes[1].lines[line].at[0];
  seen.kernel = kernel, seen.place = place;
  const go = panes[1].querySelector('select');
  seen.functions = [...go.options].map(o => o.text), seen.opened = panes[1].lines[go.value].text;
  seen.links.ir = click(panes[1], line);
  seen.links.source = click(panes[0], place.split(':')[1] - 1);
  seen.links.host = click(panes[2], panes[2].lines.findIndex(l => l.kernel === kernel && !l.far));
  panes[3].pick.value = kernel; panes[3].pick.onchange();
  seen.links.assembly = click(panes[3], 5);
  seen.launch = panes[2].lines.findIndex(l => l.kernel === kernel && /rt_launch/.test(l.text));
  const e = new Event('x'); tab = 3; draw();
  document.querySelector('rect.b').onclick(); seen.jumped = tab;
} catch (e) { seen.errors.push(String(e) + e.stack); }
document.title = JSON.stringify(seen);
</script></body>"""
page = read(f'{d}/page.html').decode().replace('</body>', script)
open(f'{d}/clicked.html', 'w').write(page)
p = subprocess.run([browser, '--headless', '--no-sandbox', '--disable-gpu', f'--user-data-dir={d}/profile',
                    '--virtual-time-budget=20000', '--dump-dom',
                    f'file://{d}/clicked.html'], capture_output=True, text=True, timeout=1200)
title = re.search(r'<title>(.*?)</title>', p.stdout, re.S)
check(title and title[1].startswith('{'), 'the page was not drawn: ' + p.stderr[-500:])
seen = json.loads(html.unescape(title[1]))
check(not seen['errors'], f'errors in the page: {seen["errors"]}')
check('@eval' in seen['functions'] and seen['opened'].startswith('entry @step'),
      f'functions of the IR: {seen["functions"]}, at {seen["opened"]}')
check(min(seen['views']) >= 1 and max(seen['views']) > 300, f'empty views: {seen["views"]}')
check(len(set(seen['heads'])) == 1 and 'peak' in seen['heads'][0],
      f'beside the picture of memory stands what it shows: {seen["heads"]}')
line = int(seen['place'].split(':')[1]) - 1
for start, panes in seen['links'].items():
    (source, _), (ir, _), (host, _), (assembly, kernel) = panes
    check(line in source, f'from {start}: source line {line + 1} is not lit, only {source}')
    check(ir and host and assembly, f'from {start}: nothing lit in a pane')
    if start != 'source':
        check(kernel == seen['kernel'] and seen['launch'] in host, f'from {start}: {kernel} is shown, {host}')
check(seen['jumped'] == 2, 'a block of memory does not lead to the IR')
shutil.rmtree(d)
